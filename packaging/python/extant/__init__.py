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
so on). A volume and its files may be used by many threads.
"""

import ctypes
import os
import stat as _stat
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import NamedTuple

_WRITE, _CREATE, _EXCLUSIVE, _TRUNCATE = 1, 2, 4, 8


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
    """Something that the library holds open; closed by close, at the end of a with, or when it is let go."""

    _closes = ""
    _handle = None

    def _held(self):
        if self._handle is None:
            raise ValueError("it is closed")
        return self._handle

    def close(self):
        handle, self._handle = self._handle, None
        if handle is not None:
            _ask(self._closes, handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            self.close()
        except OSError:
            pass


class _List(_Handle):
    _closes = "list_close"

    def __init__(self, volume, what, path):
        handle = c_void_p()
        self._path = path
        _ask(what, volume._held(), _bytes(path), byref(handle), path=path)
        self._handle, self._volume = handle, volume

    def __iter__(self):
        return self

    def __next__(self):
        entry = _Entry()
        if self._handle is None or _ask("list_next", self._handle, byref(entry), path=self._path) == 0:
            self.close()
            raise StopIteration
        return Entry(os.fsdecode(entry.path), entry.ino, _KINDS.get(entry.kind, "unknown"), entry.depth)


class File(_Handle):
    """An open file: read and write at places."""

    _closes = "file_close"

    def __init__(self, volume, path, flags, mode):
        handle = c_void_p()
        _ask("file_open", volume._held(), _bytes(path), flags, mode, byref(handle), path=path)
        self._handle, self._volume = handle, volume

    def read_at(self, offset, length):
        if offset < 0 or length < 0:
            raise ValueError("offset and length are not negative")
        memory = ctypes.create_string_buffer(length)
        done = _ask("file_read", self._held(), offset, memory, length)
        return memory[:done]

    def write_at(self, offset, data):
        if offset < 0:
            raise ValueError("the offset is not negative")
        data = bytes(data)
        return _ask("file_write", self._held(), offset, data, len(data))

    def truncate(self, size):
        if size < 0:
            raise ValueError("the size is not negative")
        _ask("file_truncate", self._held(), size)

    def sync(self):
        _ask("file_sync", self._held())


class Volume(_Handle):
    """An open volume."""

    _closes = "close"

    def __init__(self, image, write=False):
        handle = c_void_p()
        _ask("open", _bytes(image), _WRITE if write else 0, byref(handle), path=image)
        self._handle = handle

    def _do(self, name, path, *more):
        return _ask(name, self._held(), _bytes(path), *more, path=path)

    def sync(self):
        _ask("sync", self._held())

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
        flags = write * _WRITE | create * _CREATE | exclusive * _EXCLUSIVE | truncate * _TRUNCATE
        return File(self, path, flags, mode)

    def read(self, path):
        size = self.stat(path).size
        with self.open_file(path) as file:
            return file.read_at(0, size)

    def write(self, path, data, *, mode=0o644):
        with self.open_file(path, write=True, create=True, truncate=True, mode=mode) as file:
            return file.write_at(0, data)

    def mkdir(self, path, mode=0o755):
        self._do("mkdir", path, mode)

    def rmdir(self, path):
        self._do("rmdir", path)

    def unlink(self, path):
        self._do("unlink", path)

    def rename(self, source, destination):
        self._do("rename", source, _bytes(destination))

    def symlink(self, target, path):
        _ask("symlink", self._held(), _bytes(target), _bytes(path), path=path)

    def link(self, original, path):
        _ask("link", self._held(), _bytes(original), _bytes(path), path=path)


def open(image, *, write=False):  # noqa: A001 - as extant.open, beside os.open and tarfile.open
    """Opens the volume in an image file or on a block device."""
    return Volume(image, write)


def mkfs(image, size, *, block_size=0, label=None, features=None):
    """Makes an empty volume in a new file."""
    text = [None if value is None else value.encode() for value in (label, features)]
    _ask("mkfs", _bytes(image), size, block_size, *text, path=image)


def build(source, image, *, free=0):
    """Builds the smallest image that holds a directory, a tar or an OCI layout; its size in bytes."""
    size = c_uint64()
    _ask("build", _bytes(source), _bytes(image), free, byref(size), path=source)
    return size.value


def check(image):
    """Checks a volume and writes nothing."""
    found = []
    hear = _HEAR(lambda _, line, damage: found.append(Finding(line.decode(errors="replace"), bool(damage))))
    code = _ask("check", _bytes(image), hear, None, path=image)
    return Report(code == 0, code, found)
