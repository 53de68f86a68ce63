"""ext4 volumes in user space: open, make, read, change, build and check them.

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

_WRITE, _CREATE, _EXCLUSIVE, _TRUNCATE = 1, 2, 4, 8
# The largest offset, size and length that the library takes, and the largest mode.
_BYTES_MAX, _MODE_MAX = 2**63 - 1, 0o7777


class _Time(ctypes.Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_uint32), ("reserved", c_uint32)]


class _Stat(ctypes.Structure):
    _fields_ = [
        ("ino", c_uint64), ("size", c_uint64), ("sectors", c_uint64), ("mode", c_uint32), ("links", c_uint32),
        ("uid", c_uint32), ("gid", c_uint32), ("accessed", _Time), ("modified", _Time), ("changed", _Time),
    ]


class _Entry(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("ino", c_uint64), ("kind", c_uint32), ("depth", c_uint32)]


_HEAR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_int)
_HANDLE, _OUT = c_void_p, POINTER(c_void_p)


def _load():
    place = os.environ.get("EXTANT_LIBRARY") or str(Path(__file__).with_name("libextant.so"))
    library = ctypes.CDLL(place)
    for name, result, *arguments in [
        ("version", c_char_p), ("message", c_char_p),
        ("open", c_int, c_char_p, c_uint, _OUT), ("close", c_int, _HANDLE), ("sync", c_int, _HANDLE),
        ("stat", c_int, _HANDLE, c_char_p, POINTER(_Stat)), ("lstat", c_int, _HANDLE, c_char_p, POINTER(_Stat)),
        ("readlink", c_int64, _HANDLE, c_char_p, c_void_p, c_size_t),
        ("mkdir", c_int, _HANDLE, c_char_p, c_uint32), ("rmdir", c_int, _HANDLE, c_char_p),
        ("unlink", c_int, _HANDLE, c_char_p), ("rename", c_int, _HANDLE, c_char_p, c_char_p),
        ("symlink", c_int, _HANDLE, c_char_p, c_char_p), ("link", c_int, _HANDLE, c_char_p, c_char_p),
        ("file_open", c_int, _HANDLE, c_char_p, c_uint, c_uint32, _OUT), ("file_close", c_int, _HANDLE),
        ("file_read", c_int64, _HANDLE, c_uint64, c_void_p, c_size_t),
        ("file_write", c_int64, _HANDLE, c_uint64, c_char_p, c_size_t),
        ("file_truncate", c_int, _HANDLE, c_uint64), ("file_sync", c_int, _HANDLE),
        ("readdir", c_int, _HANDLE, c_char_p, _OUT), ("walk", c_int, _HANDLE, c_char_p, _OUT),
        ("list_next", c_int, _HANDLE, POINTER(_Entry)), ("list_close", c_int, _HANDLE),
        ("mkfs", c_int, c_char_p, c_uint64, c_uint32, c_char_p, c_char_p),
        ("build", c_int, c_char_p, c_char_p, c_uint64, POINTER(c_uint64)),
        ("check", c_int, c_char_p, _HEAR, c_void_p),
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
        offset, data = _number(offset, "the offset"), bytes(data)
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

    def __init__(self, image, write=False):
        handle = c_void_p()
        _ask("open", _bytes(image), _WRITE if write else 0, byref(handle), path=image)
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
        return Stat(s.ino, s.size, s.sectors, s.mode, s.links, s.uid, s.gid, *times)

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

    def exists(self, path):
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def makedirs(self, path, mode=0o755, exist_ok=False):
        """Creates a directory and those above it that are missing, as os.makedirs."""
        path = os.fsencode(path)
        made = b"/" if path.startswith(b"/") else b""
        names = [name for name in path.split(b"/") if name]
        for at, name in enumerate(names):
            made = os.path.join(made, name)
            try:
                self.mkdir(made, mode)
            except FileExistsError:
                last = at == len(names) - 1
                if last and not (exist_ok and _stat.S_ISDIR(self.stat(made).mode)):
                    raise

    def rmtree(self, path):
        """Removes a directory and everything below it; symlinks are not followed."""
        with self.walk(path) as entries:
            found = [(entry.path, entry.kind) for entry in entries]
        if found and found[0][1] != "directory":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fsdecode(path))
        for below, kind in reversed(found):
            self.rmdir(below) if kind == "directory" else self.unlink(below)


def open(image, *, write=False):  # noqa: A001 - as extant.open, beside os.open and tarfile.open
    """Opens the volume in an image file or on a block device."""
    return Volume(image, write)


def mkfs(image, size, *, block_size=0, label=None, features=None):
    """Makes an empty volume in a new file."""
    text = [None if value is None else value.encode() for value in (label, features)]
    numbers = _number(size, "the size"), _number(block_size, "the block size", 2**32 - 1)
    _ask("mkfs", _bytes(image), *numbers, *text, path=image)


def build(source, image, *, free=0):
    """Builds the smallest image that holds a directory, a tar or an OCI layout; its size in bytes."""
    size = c_uint64()
    _ask("build", _bytes(source), _bytes(image), _number(free, "the free space"), byref(size), path=source)
    return size.value


def check(image):
    """Checks a volume and writes nothing."""
    found = []
    hear = _HEAR(lambda _, line, damage: found.append(Finding(line.decode(errors="replace"), bool(damage))))
    code = _ask("check", _bytes(image), hear, None, path=image)
    return Report(code == 0, code, found)
