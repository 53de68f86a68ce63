"""A program that has installed the wheel and knows its documentation."""

import errno
import inspect
import io
import shutil
import stat
import threading
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

# Numbers that do not fit are errors, and nothing is cut to the bits that do.
with extant.open("new.img", write=True) as volume:
    volume.write("/numbers", b"kept")
    with volume.open_file("/numbers", write=True) as file:
        for wrong, error in ((2**64, OverflowError), (2**63, OverflowError), (-1, ValueError), (1.0, TypeError)):
            for call in (lambda n: file.truncate(n), lambda n: file.read_at(n, 1), lambda n: file.write_at(n, b"x"),
                         lambda n: file.seek(n), lambda n: volume.mkdir("/wrong", n), lambda n: file.read_at(0, n)):
                try:
                    call(wrong)
                    raise AssertionError(wrong)
                except error:
                    pass
        for far in (2**62, 2**63 - 1):
            try:
                file.write_at(far, b"x")
                raise AssertionError(far)
            except OSError as error:
                assert error.errno in (errno.EFBIG, errno.EINVAL), error
        assert file.read_at(2**63 - 1, 1) == b""
    assert volume.read("/numbers") == b"kept" and not volume.exists("/wrong")
    volume.unlink("/numbers")
for wrong in (2**64, -1):
    try:
        extant.mkfs("wrong.img", wrong)
        raise AssertionError(wrong)
    except (OverflowError, ValueError):
        pass

# Files are files of io; trees are made and removed as os and shutil do it.
with extant.open("new.img", write=True) as volume:
    volume.makedirs("/deep/er/still")
    volume.makedirs("/deep/er/still", exist_ok=True)
    try:
        volume.makedirs("/deep/er/still")
        raise AssertionError("it was there")
    except FileExistsError:
        pass
    with io.TextIOWrapper(io.BufferedWriter(volume.open_file("/deep/text", write=True, create=True))) as text:
        print("first", "second", sep="\n", file=text)
    with io.TextIOWrapper(io.BufferedReader(volume.open_file("/deep/text"))) as text:
        assert text.readlines() == ["first\n", "second\n"]
    with volume.open_file("/deep/text") as source, open("copied", "wb") as target:
        shutil.copyfileobj(source, target)
        assert source.seek(-7, io.SEEK_END) == 6 and source.read() == b"second\n" and source.closed is False
    assert open("copied", "rb").read() == b"first\nsecond\n"
    volume.rmtree("/deep")
    assert not volume.exists("/deep")

# Close beside reads, and one iterator in several threads: each call has its whole answer, or ValueError.
with extant.open("new.img", write=True) as volume:
    volume.mkdir("/many")
    for n in range(200):
        volume.write(f"/many/{n}", b"%d" % n * 1000)
    for _ in range(20):
        file, names, seen = volume.open_file("/many/7"), volume.scandir("/many"), []
        wrong = []

        def read(file=file):
            try:
                while True:
                    assert file.read_at(0, 2000) == b"7" * 1000
            except ValueError:
                pass
            except BaseException as error:
                wrong.append(error)

        def listing(names=names):
            try:
                seen.extend(entry.path for entry in names)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for work in (read, read, listing, listing, listing)]
        for thread in threads:
            thread.start()
        file.close()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert sorted(seen) == sorted(str(n) for n in range(200)), len(seen)
    volume.rmtree("/many")

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
