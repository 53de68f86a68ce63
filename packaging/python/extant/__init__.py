"""ext4 volumes in user space: open, make, read, change, build, resize, tune and check them.

    import extant

    extant.build("rootfs", "root.img", free=64 << 20)
    with extant.open("root.img", write=True) as volume:
        volume.write("/etc/hostname", b"guest\\n")
        for entry in volume.walk("/"):
            print(entry.path, entry.kind)
    assert extant.check("root.img").clean

Paths inside a volume are str, os.PathLike or bytes, counted from its root; names that are not UTF-8
are given as os.fsdecode gives them. What fails raises OSError with its errno (FileNotFoundError and
so on); a number that does not fit raises OverflowError, a negative one ValueError. Volumes, files and
iterators may be used by many threads: close waits for calls that have begun, and a call that begins
after it raises ValueError.
"""

import ctypes
import errno
import io
import operator
import os
import stat as _stat
import threading
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid1, uuid4

_WRITE, _CREATE, _EXCLUSIVE, _TRUNCATE, _NOFOLLOW, _REPLACE = 1, 2, 4, 8, 16, 32
# The largest offset, size and length that the library takes, the largest mode, and the largest owner.
_BYTES_MAX, _MODE_MAX, _ID_MAX = 2**63 - 1, 0o7777, 2**32 - 2
# Bytes that are copied at a time.
_CHUNK = 1 << 20


class _Time(ctypes.Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_uint32), ("reserved", c_uint32)]


class _Stat(ctypes.Structure):
    _fields_ = [
        ("ino", c_uint64), ("size", c_uint64), ("sectors", c_uint64), ("mode", c_uint32), ("links", c_uint32),
        ("uid", c_uint32), ("gid", c_uint32), ("accessed", _Time), ("modified", _Time), ("changed", _Time),
        ("device_major", c_uint32), ("device_minor", c_uint32),
    ]


class _Space(ctypes.Structure):
    _fields_ = [
        ("block_bytes", c_uint32), ("reserved", c_uint32), ("blocks", c_uint64), ("free", c_uint64),
        ("available", c_uint64), ("inodes", c_uint64), ("free_inodes", c_uint64),
    ]


class _Entry(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("ino", c_uint64), ("kind", c_uint32), ("depth", c_uint32)]


_HEAR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_int)
_HANDLE, _OUT, _TEXTS = c_void_p, POINTER(c_void_p), POINTER(c_char_p)


def _load():
    place = os.environ.get("EXTANT_LIBRARY") or str(Path(__file__).with_name("libextant.so"))
    library = ctypes.CDLL(place)
    for name, result, *arguments in [
        ("version", c_char_p), ("message", c_char_p),
        ("open_at", c_int, c_char_p, c_uint64, c_uint, _OUT), ("close", c_int, _HANDLE), ("sync", c_int, _HANDLE),
        ("stat", c_int, _HANDLE, c_char_p, POINTER(_Stat)), ("lstat", c_int, _HANDLE, c_char_p, POINTER(_Stat)),
        ("readlink", c_int64, _HANDLE, c_char_p, c_void_p, c_size_t),
        ("mkdir", c_int, _HANDLE, c_char_p, c_uint32), ("rmdir", c_int, _HANDLE, c_char_p),
        ("mkdir_all", c_int, _HANDLE, c_char_p, c_uint32), ("rmdir_all", c_int, _HANDLE, c_char_p),
        ("unlink", c_int, _HANDLE, c_char_p), ("rename", c_int, _HANDLE, c_char_p, c_char_p),
        ("symlink", c_int, _HANDLE, c_char_p, c_char_p), ("link", c_int, _HANDLE, c_char_p, c_char_p),
        ("mknod", c_int, _HANDLE, c_char_p, c_uint32, c_uint32, c_uint32),
        ("chmod", c_int, _HANDLE, c_char_p, c_uint32),
        ("chown", c_int, _HANDLE, c_char_p, c_uint32, c_uint32, c_uint),
        ("utime", c_int, _HANDLE, c_char_p, POINTER(_Time), POINTER(_Time), c_uint),
        ("getxattr", c_int64, _HANDLE, c_char_p, c_char_p, c_void_p, c_size_t, c_uint),
        ("listxattr", c_int64, _HANDLE, c_char_p, c_void_p, c_size_t, c_uint),
        ("setxattr", c_int, _HANDLE, c_char_p, c_char_p, c_char_p, c_size_t, c_uint),
        ("removexattr", c_int, _HANDLE, c_char_p, c_char_p, c_uint),
        ("space", c_int, _HANDLE, POINTER(_Space)),
        ("file_open", c_int, _HANDLE, c_char_p, c_uint, c_uint32, _OUT), ("file_close", c_int, _HANDLE),
        ("file_read", c_int64, _HANDLE, c_uint64, c_void_p, c_size_t),
        ("file_write", c_int64, _HANDLE, c_uint64, c_char_p, c_size_t),
        ("file_truncate", c_int, _HANDLE, c_uint64), ("file_sync", c_int, _HANDLE),
        ("readdir", c_int, _HANDLE, c_char_p, _OUT), ("walk", c_int, _HANDLE, c_char_p, _OUT),
        ("list_next", c_int, _HANDLE, POINTER(_Entry)), ("list_close", c_int, _HANDLE),
        ("mkfs", c_int, c_char_p, c_uint64, c_uint32, c_char_p, c_char_p),
        ("build_with", c_int, _TEXTS, c_char_p, _TEXTS, _HEAR, c_void_p, POINTER(c_uint64)),
        ("tune", c_int, c_char_p, c_uint64, _TEXTS),
        ("check_at", c_int, c_char_p, c_uint64, _HEAR, c_void_p),
        ("resize", c_int, c_char_p, c_uint64, POINTER(c_uint64)), ("replay", c_int, c_char_p, c_uint64),
    ]:
        function = getattr(library, "extant_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_lib = _load()
__version__ = _lib.extant_version().decode()


def _bytes(path):
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    return name


def _number(value, what, most=_BYTES_MAX):
    """An integer from 0 to most: ctypes would cut it to the bits that fit."""
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{what} is negative")
    if number > most:
        raise OverflowError(f"{what} is larger than {most}")
    return number


def _content(data):
    """The bytes of a buffer; bytes() would take a number for a length."""
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def _ask(name, *arguments, path=None):
    """Calls the library, and raises what it answers."""
    answer = getattr(_lib, "extant_" + name)(*arguments)
    if answer < 0:
        message = _lib.extant_message().decode(errors="replace")
        raise OSError(-answer, message, None if path is None else os.fsdecode(path))
    return answer


class Stat(NamedTuple):
    ino: int
    size: int
    sectors: int
    mode: int
    links: int
    uid: int
    gid: int
    accessed_ns: int
    modified_ns: int
    changed_ns: int
    device: int


class Entry(NamedTuple):
    path: str
    ino: int
    kind: str
    depth: int


class Finding(NamedTuple):
    text: str
    damage: bool


class Report(NamedTuple):
    clean: bool
    exit_code: int
    findings: list


_KINDS = {
    _stat.S_IFREG: "file", _stat.S_IFDIR: "directory", _stat.S_IFLNK: "symlink", _stat.S_IFIFO: "fifo",
    _stat.S_IFSOCK: "socket", _stat.S_IFCHR: "char", _stat.S_IFBLK: "block",
}


class _Handle:
    """Something that the library holds open; closed by close, at the end of a with, or when it is collected.

    The library must not see a handle that was closed, so calls in progress are counted, and close waits for them.
    """

    _closes = ""
    _handle = None

    def __init__(self, handle):
        self._changed = threading.Condition()
        self._calls = 0
        self._handle = handle

    @contextmanager
    def _held(self):
        with self._changed:
            if self._handle is None:
                raise ValueError("it is closed")
            handle = self._handle
            self._calls += 1
        try:
            yield handle
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def _give_back(self):
        if self._handle is None:
            return
        with self._changed:
            handle, self._handle = self._handle, None
            while self._calls:
                self._changed.wait()
        if handle is not None:
            _ask(self._closes, handle)

    def close(self):
        self._give_back()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            self._give_back()
        except OSError:
            pass


class _List(_Handle):
    _closes = "list_close"

    def __init__(self, volume, what, path):
        handle = c_void_p()
        with volume._held() as held:
            _ask(what, held, _bytes(path), byref(handle), path=path)
        super().__init__(handle)
        self._path, self._volume = path, volume
        # An entry's path belongs to the library until the next call.
        self._next = threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        entry = _Entry()
        with self._next:
            try:
                with self._held() as handle:
                    if _ask("list_next", handle, byref(entry), path=self._path):
                        kind = _KINDS.get(entry.kind, "unknown")
                        return Entry(os.fsdecode(entry.path), entry.ino, kind, entry.depth)
            except ValueError:
                raise StopIteration from None
        self.close()
        raise StopIteration


class File(_Handle, io.RawIOBase):
    """An open file, as io.RawIOBase has it: io.BufferedReader, io.TextIOWrapper and shutil.copyfileobj take it.

    read_at and write_at use places of their own, and may be called from many threads.
    """

    _closes = "file_close"

    def __init__(self, volume, path, flags, mode):
        handle = c_void_p()
        with volume._held() as held:
            mode = _number(mode, "the mode", _MODE_MAX)
            _ask("file_open", held, _bytes(path), flags, mode, byref(handle), path=path)
        super().__init__(handle)
        self._volume, self._writes, self._at = volume, bool(flags & _WRITE), 0
        self._path = path

    def read_at(self, offset, length):
        offset, length = _number(offset, "the offset"), _number(length, "the length")
        memory = ctypes.create_string_buffer(length)
        with self._held() as handle:
            done = _ask("file_read", handle, offset, memory, length)
        return memory[:done]

    def write_at(self, offset, data):
        offset, data = _number(offset, "the offset"), _content(data)
        with self._held() as handle:
            return _ask("file_write", handle, offset, data, len(data))

    def truncate(self, size=None):
        size = self._at if size is None else _number(size, "the size")
        with self._held() as handle:
            _ask("file_truncate", handle, size)
        return size

    def sync(self):
        with self._held() as handle:
            _ask("file_sync", handle)

    def readable(self):
        return True

    def writable(self):
        return self._writes

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        offset = operator.index(offset)
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += self._volume.stat(self._path).size
        elif whence != os.SEEK_SET:
            raise ValueError(f"whence is {whence}, not 0, 1 or 2")
        self._at = _number(offset, "the offset")
        return self._at

    def readinto(self, buffer):
        with memoryview(buffer).cast("B") as view:
            data = self.read_at(self._at, len(view))
            view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def write(self, data):
        done = self.write_at(self._at, data)
        self._at += done
        return done

    def close(self):
        try:
            self._give_back()
        finally:
            io.RawIOBase.close(self)


class Volume(_Handle):
    """An open volume."""

    _closes = "close"

    def __init__(self, image, write=False, *, offset=0):
        handle = c_void_p()
        flags = _WRITE if write else 0
        _ask("open_at", _bytes(image), _number(offset, "the offset"), flags, byref(handle), path=image)
        super().__init__(handle)

    def _do(self, name, path, *more):
        with self._held() as handle:
            return _ask(name, handle, _bytes(path), *more, path=path)

    def sync(self):
        with self._held() as handle:
            _ask("sync", handle)

    def stat(self, path, *, follow_symlinks=True):
        s = _Stat()
        self._do("stat" if follow_symlinks else "lstat", path, byref(s))
        times = (t.sec * 10**9 + t.nsec for t in (s.accessed, s.modified, s.changed))
        device = os.makedev(s.device_major, s.device_minor)
        return Stat(s.ino, s.size, s.sectors, s.mode, s.links, s.uid, s.gid, *times, device)

    def readlink(self, path):
        memory = ctypes.create_string_buffer(65536)
        length = self._do("readlink", path, memory, len(memory))
        return os.fsdecode(memory[:length])

    def listdir(self, path="/"):
        return [entry.path for entry in _List(self, "readdir", path)]

    def scandir(self, path="/"):
        return _List(self, "readdir", path)

    def walk(self, path="/"):
        return _List(self, "walk", path)

    def open_file(self, path, *, write=False, create=False, exclusive=False, truncate=False, mode=0o644):
        asked = [(write, _WRITE), (create, _CREATE), (exclusive, _EXCLUSIVE), (truncate, _TRUNCATE)]
        flags = sum(bit for wanted, bit in asked if wanted)
        return File(self, path, flags, mode)

    def read(self, path):
        size = self.stat(path).size
        with self.open_file(path) as file:
            return file.read_at(0, size)

    def write(self, path, data, *, mode=0o644):
        data = _content(data)
        with self.open_file(path, write=True, create=True, truncate=True, mode=mode) as file:
            return file.write_at(0, data)

    def mkdir(self, path, mode=0o755):
        self._do("mkdir", path, _number(mode, "the mode", _MODE_MAX))

    def rmdir(self, path):
        self._do("rmdir", path)

    def unlink(self, path):
        self._do("unlink", path)

    def rename(self, source, destination):
        self._do("rename", source, _bytes(destination))

    def symlink(self, target, path):
        with self._held() as handle:
            _ask("symlink", handle, _bytes(target), _bytes(path), path=path)

    def link(self, original, path):
        with self._held() as handle:
            _ask("link", handle, _bytes(original), _bytes(path), path=path)

    def mknod(self, path, mode=0o600, device=0):
        """Makes an empty file, pipe, socket or device, as os.mknod."""
        kind, bits = _stat.S_IFMT(mode), _number(_stat.S_IMODE(mode), "the mode", _MODE_MAX)
        device = _number(device, "the device", 2**32 - 1)
        self._do("mknod", path, kind | bits, os.major(device), os.minor(device))

    def chmod(self, path, mode):
        self._do("chmod", path, _number(mode, "the mode", _MODE_MAX))

    def chown(self, path, uid, gid, *, follow_symlinks=True):
        """Changes owner and group; -1 leaves one as it is."""
        ids = [2**32 - 1 if n == -1 else _number(n, "an owner or group", _ID_MAX) for n in (uid, gid)]
        self._do("chown", path, *ids, 0 if follow_symlinks else _NOFOLLOW)

    def utime(self, path, times=None, *, ns=None, follow_symlinks=True):
        """Sets the times of access and of change of the content, as os.utime; without times, to the present."""
        if times is not None and ns is not None:
            raise ValueError("times and ns exclude each other")
        if times is not None:
            ns = [round(operator.index(t) * 10**9 if isinstance(t, int) else t * 10**9) for t in times]
        given = [None, None]
        if ns is not None:
            accessed, modified = (divmod(operator.index(n), 10**9) for n in ns)
            if not all(-(2**63) <= sec < 2**63 for sec, _ in (accessed, modified)):
                raise OverflowError("a time does not fit")
            given = [byref(_Time(*accessed)), byref(_Time(*modified))]
        self._do("utime", path, *given, 0 if follow_symlinks else _NOFOLLOW)

    def getxattr(self, path, attribute, *, follow_symlinks=True):
        memory = ctypes.create_string_buffer(65536)
        flags = 0 if follow_symlinks else _NOFOLLOW
        return memory[: self._do("getxattr", path, _bytes(attribute), memory, len(memory), flags)]

    def listxattr(self, path="/", *, follow_symlinks=True):
        flags, length = 0 if follow_symlinks else _NOFOLLOW, 65536
        while True:
            memory = ctypes.create_string_buffer(length)
            whole = self._do("listxattr", path, memory, length, flags)
            if whole <= length:
                return [os.fsdecode(name) for name in memory[:whole].split(b"\0")[:-1]]
            length = whole

    def setxattr(self, path, attribute, value, flags=0, *, follow_symlinks=True):
        """Sets an extended attribute, as os.setxattr: flags are os.XATTR_CREATE or os.XATTR_REPLACE."""
        known = {0: 0, os.XATTR_CREATE: _EXCLUSIVE, os.XATTR_REPLACE: _REPLACE}
        if flags not in known:
            raise ValueError(f"flags are {flags}")
        flags, value = known[flags] | (0 if follow_symlinks else _NOFOLLOW), _content(value)
        self._do("setxattr", path, _bytes(attribute), value, len(value), flags)

    def removexattr(self, path, attribute, *, follow_symlinks=True):
        self._do("removexattr", path, _bytes(attribute), 0 if follow_symlinks else _NOFOLLOW)

    def statvfs(self):
        """How full the volume is, as os.statvfs."""
        s = _Space()
        with self._held() as handle:
            _ask("space", handle, byref(s))
        files = s.inodes, s.free_inodes, s.free_inodes
        return os.statvfs_result((s.block_bytes, s.block_bytes, s.blocks, s.free, s.available, *files, 0, 255))

    def copy_in(self, source, path):
        """Copies a file or tree of this machine to path, which is not there: modes, owners, times, symlinks, hard
        links, holes, devices and extended attributes with it."""
        _copy(_Host(), os.fsencode(source), self, os.fsencode(path))

    def copy_out(self, path, destination):
        """Copies a file or tree to this machine, to destination, which is not there. Owners and devices come with
        it for root, extended attributes as far as the filesystem there takes them."""
        _copy(self, os.fsencode(path), _Host(), os.fsencode(destination))

    def xattrs(self, path):
        """All extended attributes of a file or symlink, as pairs of name and value."""
        names = self.listxattr(path, follow_symlinks=False)
        return [(name, self.getxattr(path, name, follow_symlinks=False)) for name in names]

    def exists(self, path):
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def makedirs(self, path, mode=0o755, exist_ok=False):
        """Creates a directory and those above it that are missing, as os.makedirs."""
        path = os.fsencode(path)
        above = path.rstrip(b"/").rpartition(b"/")[0]
        if above:
            self._do("mkdir_all", above, _number(mode, "the mode", _MODE_MAX))
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not (exist_ok and _stat.S_ISDIR(self.stat(path).mode)):
                raise

    def rmtree(self, path):
        """Removes a directory and everything below it; symlinks are not followed."""
        self._do("rmdir_all", path)


class _Host:
    """This machine's files, by the calls that _copy makes of a volume."""

    listdir, readlink, symlink, link, mkdir = (staticmethod(f) for f in (os.listdir, os.readlink, os.symlink, os.link, os.mkdir))

    @staticmethod
    def stat(path, *, follow_symlinks=True):
        s = os.stat(path, follow_symlinks=follow_symlinks)
        times = s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns
        ids = s.st_uid, s.st_gid
        # One number a file, also where the tree lies on several filesystems.
        return Stat((s.st_dev, s.st_ino), s.st_size, s.st_blocks, s.st_mode, s.st_nlink, *ids, *times, s.st_rdev)

    @staticmethod
    def open_file(path, *, write=False, **_):
        return io.FileIO(path, "xb" if write else "rb")

    @staticmethod
    def mknod(path, mode, device):
        if _stat.S_ISSOCK(mode) or os.geteuid() == 0 or _stat.S_ISFIFO(mode):
            os.mknod(path, mode, device)
        else:
            raise PermissionError(errno.EPERM, "only root makes device files", os.fsdecode(path))

    @staticmethod
    def chmod(path, mode):
        os.chmod(path, mode)

    @staticmethod
    def chown(path, uid, gid, *, follow_symlinks):
        if os.geteuid() == 0:
            os.chown(path, uid, gid, follow_symlinks=follow_symlinks)

    @staticmethod
    def utime(path, *, ns, follow_symlinks):
        os.utime(path, ns=ns, follow_symlinks=follow_symlinks)

    @staticmethod
    def xattrs(path):
        try:
            names = os.listxattr(path, follow_symlinks=False)
            return [(name, os.getxattr(path, name, follow_symlinks=False)) for name in names]
        except OSError as error:
            if error.errno in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
                return []
            raise

    @staticmethod
    def setxattr(path, name, value, *, follow_symlinks):
        try:
            os.setxattr(path, name, value, follow_symlinks=follow_symlinks)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
                raise


def _copy(of, source, to, target):
    """Copies source of one side to target of the other. Nothing that is there is written to or followed."""
    seen, entered, later, todo = {}, set(), [], [(source, target)]
    while todo:
        source, target = todo.pop()
        found = of.stat(source, follow_symlinks=False)
        kind = _stat.S_IFMT(found.mode)
        if found.links > 1 and kind != _stat.S_IFDIR:
            if found.ino in seen:
                to.link(seen[found.ino], target)
                continue
            seen[found.ino] = target
        if kind == _stat.S_IFDIR:
            # Directories of a damaged volume can hold each other, and each of them many times.
            if isinstance(of, Volume) and found.ino in entered:
                raise OSError(errno.EUCLEAN, "directory is reachable in more than one way", os.fsdecode(source))
            entered.add(found.ino)
            to.mkdir(target, 0o700)
            for name in of.listdir(source):
                name = os.fsencode(name)
                if name in (b"", b".", b"..") or b"/" in name:
                    raise OSError(errno.EUCLEAN, "a name that leads out of its directory", os.fsdecode(source))
                todo.append((os.path.join(source, name), os.path.join(target, name)))
            # What is put into it changes its times, and its mode may forbid that.
            later.append((target, found, of.xattrs(source)))
            continue
        if kind == _stat.S_IFLNK:
            to.symlink(of.readlink(source), target)
        elif kind == _stat.S_IFREG:
            with of.open_file(source) as reads, to.open_file(target, write=True, create=True, exclusive=True) as writes:
                _copy_content(reads, writes)
        else:
            to.mknod(target, kind | 0o600, found.device)
        _copy_attributes(to, target, found, of.xattrs(source))
    for target, found, xattrs in reversed(later):
        _copy_attributes(to, target, found, xattrs)


def _copy_content(reads, writes):
    """Copies a file's bytes; runs of zeros become holes."""
    at = 0
    while data := reads.read(_CHUNK):
        at += len(data)
        if data.count(0) == len(data):
            continue
        writes.seek(at - len(data))
        view = memoryview(data)
        while view:
            view = view[writes.write(view) :]
    writes.truncate(at)


def _copy_attributes(to, target, found, xattrs):
    to.chown(target, found.uid, found.gid, follow_symlinks=False)
    for name, value in xattrs:
        to.setxattr(target, name, value, follow_symlinks=False)
    if not _stat.S_ISLNK(found.mode):
        to.chmod(target, _stat.S_IMODE(found.mode))
    to.utime(target, ns=(found.accessed_ns, found.modified_ns), follow_symlinks=False)


def open(image, *, write=False, offset=0):  # noqa: A001 - as extant.open, beside os.open and tarfile.open
    """Opens the volume in an image file or on a block device, from byte offset on, such as a partition's."""
    return Volume(image, write, offset=offset)


def mkfs(image, size, *, block_size=0, label=None, features=None):
    """Makes an empty volume in a new file."""
    text = [None if value is None else value.encode() for value in (label, features)]
    numbers = _number(size, "the size"), _number(block_size, "the block size", 2**32 - 1)
    _ask("mkfs", _bytes(image), *numbers, *text, path=image)


def _texts(texts):
    """A list as C has it: strings, then NULL."""
    return (c_char_p * (len(texts) + 1))(*texts, None)


# Of the options that are numbers, the largest; those that may be negative as well.
_MOST = dict.fromkeys(("cluster_size", "block_size", "blocks_per_group", "flex_groups", "inodes", "interval"), 2**32 - 1)
_MOST |= {"inode_size": 2**16 - 1, "max_mounts": 2**15 - 1, "threads": 256, "reserved_user": _ID_MAX, "reserved_group": _ID_MAX}
_SIGNED = ("source_date_epoch", "max_mounts")


def _options(given):
    """Options by name, as the library takes them; those that are None or False are left out."""
    texts = []
    for name, value in given.items():
        key = name.replace("_", "-").encode()
        if value is None or value is False:
            continue
        if value is True:
            texts.append(key)
            continue
        if isinstance(value, int):
            least = -1 - _MOST.get(name, _BYTES_MAX) if name in _SIGNED else 0
            if name not in _SIGNED or value >= 0:
                _number(value, name, _MOST.get(name, _BYTES_MAX))
            elif value < least:
                raise OverflowError(f"{name} is smaller than {least}")
        values = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            one = str(one) if isinstance(one, (int, float)) else one
            texts.append(key + b"=" + _bytes(one))
    return _texts(texts)


def _uuid_text(value):
    """A uuid.UUID or its text, or random, time or clear, as the command has it."""
    if value is None:
        return None
    named = {"random": uuid4, "time": uuid1, "clear": lambda: UUID(int=0)}
    return str(named[value]() if value in named else UUID(str(value)))


def build(
    source, image, *, size=None, free=None, owner=None, mode=None, ownership=None, exclude=None, exclude_from=None,
    one_file_system=False, format=None, platform=None, image_name=None, compat=None, type=None, block_size=None,
    cluster_size=None, features=None, inode_size=None, label=None, uuid=None, reserved=None, journal=None,
    blocks_per_group=None, flex_groups=None, inodes=None, source_date_epoch=None, random=False, keep_going=False,
    threads=None, spool_dir=None, max_size=None, left_out=None,
):  # fmt: skip
    """Builds an image of a directory, a tar or an OCI layout, or of a list of them, later over earlier; its size in bytes.

    The options are those of `extant build`, which explains them. Sizes are bytes, owner is a pair of numbers, mode is
    a number or text like u+rwX, exclude, exclude_from and features may be lists. What keep_going leaves out is added to
    the list left_out. An image that is there is replaced.
    """
    if owner is not None:
        owner = "{}:{}".format(*(_number(n, "an owner or group", _ID_MAX) for n in owner))
    if isinstance(mode, int):
        mode = f"{_number(mode, 'the mode', _MODE_MAX):o}"
    options = _options({
        "size": size, "free": free, "owner": owner, "mode": mode, "ownership": ownership, "exclude": exclude,
        "exclude_from": exclude_from, "one_file_system": one_file_system, "format": format, "platform": platform,
        "image_name": image_name, "compat": compat, "type": type, "block_size": block_size, "cluster_size": cluster_size,
        "features": features, "inode_size": inode_size, "label": label, "uuid": _uuid_text(uuid), "reserved": reserved,
        "journal": journal, "blocks_per_group": blocks_per_group, "flex_groups": flex_groups, "inodes": inodes,
        "source_date_epoch": source_date_epoch, "random": random, "keep_going": keep_going, "threads": threads,
        "spool_dir": spool_dir, "max_size": max_size,
    })  # fmt: skip
    sources = source if isinstance(source, (list, tuple)) else [source]
    problems = []
    hear = _HEAR(lambda _, line, damage: problems.append(line.decode(errors="replace")))
    made = c_uint64()
    texts = _texts([_bytes(one) for one in sources])
    _ask("build_with", texts, _bytes(image), options, hear, None, byref(made), path=sources[0] if sources else image)
    if left_out is not None:
        left_out.extend(problems)
    return made.value


def tune(
    image, *, offset=0, label=None, uuid=None, features=None, journal=None, reserved=None, reserved_blocks=None,
    reserved_user=None, reserved_group=None, errors=None, mount_options=None, mount_text=None, max_mounts=None,
    interval=None, clear_mmp=False,
):  # fmt: skip
    """Changes settings of a volume. The options are those of `extant tune`, which explains them: users and groups are
    numbers, interval is in seconds, journal in bytes, features may be a list."""
    options = _options({
        "label": label, "uuid": _uuid_text(uuid), "features": features, "journal": journal, "reserved": reserved,
        "reserved_blocks": reserved_blocks, "reserved_user": reserved_user, "reserved_group": reserved_group,
        "errors": errors, "mount_options": mount_options, "mount_text": mount_text, "max_mounts": max_mounts,
        "interval": interval, "clear_mmp": clear_mmp,
    })  # fmt: skip
    _ask("tune", _bytes(image), _number(offset, "the offset"), options, path=image)


def resize(image, size=None):
    """Makes a volume larger or smaller, with what it holds, and its file with it; its size in bytes then.

    size: bytes, "min" for as small as what it holds allows, None for all of the file or block device.
    """
    resized = c_uint64()
    wanted = {None: 0, "min": 2**64 - 1}.get(size) if size is None or isinstance(size, str) else _number(size, "the size")
    if wanted is None or (wanted == 0 and size is not None):
        raise ValueError(f"the size is {size!r}, not a number of bytes or 'min'")
    _ask("resize", _bytes(image), wanted, byref(resized), path=image)
    return resized.value


def replay(image, *, offset=0):
    """Recovers a volume from its journal, for good; whether that was needed."""
    return bool(_ask("replay", _bytes(image), _number(offset, "the offset"), path=image))


def check(image, *, offset=0):
    """Checks a volume and writes nothing."""
    found = []
    hear = _HEAR(lambda _, line, damage: found.append(Finding(line.decode(errors="replace"), bool(damage))))
    code = _ask("check_at", _bytes(image), _number(offset, "the offset"), hear, None, path=image)
    return Report(code == 0, code, found)
