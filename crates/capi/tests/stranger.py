"""A program that has installed the wheel and knows its documentation."""

import errno
import inspect
import stat
from importlib import resources

import extant

size = extant.build("source", "built.img", free=1 << 20)
assert size > 1 << 20
with extant.open("built.img") as volume:
    assert volume.read("/etc/hostname") == b"built\n"
    try:
        volume.write("/etc/no", b"")
        raise AssertionError("a volume opened to read was changed")
    except OSError as error:
        assert error.errno == errno.EROFS, error

extant.mkfs("new.img", 64 << 20, block_size=1024, label="python")
with extant.open("new.img", write=True) as volume:
    volume.mkdir("/a", 0o750)
    assert volume.write("/a/hello", b"hello, world\n", mode=0o600) == 13
    with volume.open_file("/a/hello", write=True) as file:
        file.write_at(7, bytearray(b"extant\n"))
        file.sync()
        assert file.read_at(7, 100) == b"extant\n"
        assert file.read_at(100, 100) == b""
        file.truncate(5)
    assert volume.read("/a/hello") == b"hello"
    volume.symlink("hello", "/a/link")
    volume.link("/a/hello", "/a/hard")
    volume.rename("/a/hard", "/a/n\udcffme")
    volume.mkdir("/gone")
    volume.rmdir("/gone")
    volume.write(b"/a/short", b"")
    volume.unlink("/a/short")
    volume.sync()
    assert volume.readlink("/a/link") == "hello"
    assert sorted(volume.listdir("/a")) == ["hello", "link", "n\udcffme"]
    kinds = {entry.path: entry.kind for entry in volume.walk("/")}
    assert kinds["/"] == kinds["/a"] == "directory" and kinds["/a/link"] == "symlink", kinds
    found = volume.stat("/a/link")
    assert (found.size, found.links, stat.S_IMODE(found.mode)) == (5, 2, 0o600)
    assert stat.S_ISLNK(volume.stat("/a/link", follow_symlinks=False).mode)
    for wrong in ("/nothing", "/a/hello/below"):
        try:
            volume.read(wrong)
            raise AssertionError(wrong)
        except (FileNotFoundError, NotADirectoryError) as error:
            assert error.filename == wrong and str(error.strerror)
try:
    volume.listdir()
    raise AssertionError("a closed volume was used")
except ValueError:
    pass

report = extant.check("new.img")
assert report.clean and report.exit_code == 0, report
with open("new.img", "rb") as whole, open("damaged.img", "wb") as copy:
    copy.write(whole.read())
with open("damaged.img", "r+b") as raw:
    raw.seek(1024 + 0x10)
    raw.write(b"\xff\xff\xff\x7f")
report = extant.check("damaged.img")
assert not report.clean and any(finding.damage for finding in report.findings), report

# Every public name has its type.
package = resources.files(extant)
hints = package.joinpath("__init__.pyi").read_text()
assert package.joinpath("py.typed").is_file()
for name, value in vars(extant).items():
    if not name.startswith("_") and getattr(value, "__module__", None) == "extant":
        assert f"class {name}" in hints or f"def {name}(" in hints, name
for kind in (extant.Volume, extant.File):
    for name, value in vars(kind).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            assert f"def {name}(" in hints, name
