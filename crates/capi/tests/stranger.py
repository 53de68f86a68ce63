"""A program that has installed the wheel and knows its documentation."""

import errno
import inspect
import io
import os
import pathlib
import shutil
import stat
import subprocess
import threading
import time
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

# A deep tree costs what it holds, and directories that hold each other end a copy and a removal.
with extant.open("new.img", write=True) as volume:
    # Its path is longer than the longest one that a walk gives.
    deep = ("d" * 250 + "/") * 300
    volume.makedirs(deep)
    volume.makedirs(deep, exist_ok=True)
    assert volume.stat(deep).links == 2
    volume.rmtree("d" * 250)
    assert not volume.exists("d" * 250)
    for wrong in (lambda: volume.write("/number", 7), lambda: volume.write("/number", "text"),
                  lambda: volume.setxattr("/", "user.number", 7)):
        try:
            wrong()
            raise AssertionError("no bytes")
        except TypeError:
            pass
    volume.makedirs("/twice/" + "a/" * 40)
    volume.makedirs("/round/a")
    assert not volume.exists("/number")
names = "\n".join(f"ln /twice/{'a/' * n}a /twice/{'a/' * n}b" for n in range(40))
debugfs = ["debugfs", "-w", "-f", "-", "new.img"]
subprocess.run(debugfs, input=f"{names}\nln /round /round/a/b\n", text=True, check=True, capture_output=True)
os.mkdir("out")
with extant.open("new.img") as volume:
    for top in ("/twice", "/round"):
        try:
            volume.copy_out(top, f"out{top}")
            raise AssertionError("directories without end")
        except OSError as error:
            assert error.errno == errno.EUCLEAN, error
        shutil.rmtree(f"out{top}")
with extant.open("new.img", write=True) as volume:
    for top in ("/twice", "/round"):
        try:
            volume.rmtree(top)
            raise AssertionError("directories without end")
        except OSError as error:
            assert error.errno == errno.EUCLEAN, error
# What follows needs a volume that is whole.
subprocess.run(["e2fsck", "-fy", "new.img"], capture_output=True)
with extant.open("new.img", write=True) as volume:
    for name in set(volume.listdir()) & {"twice", "round"}:
        volume.rmtree(name)

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

# Attributes, as os has them.
with extant.open("new.img", write=True) as volume:
    volume.write("/file", b"content")
    volume.symlink("file", "/name")
    volume.chmod("/file", 0o4751)
    volume.chown("/name", 7, -1)
    volume.chown("/name", 8, 9, follow_symlinks=False)
    volume.utime("/file", ns=(-5, 1_700_000_000_123_456_789))
    found, name = volume.stat("/file"), volume.stat("/name", follow_symlinks=False)
    # Another owner takes the set-user-ID bit away.
    assert (stat.S_IMODE(found.mode), found.uid, found.gid, name.uid, name.gid) == (0o751, 7, 0, 8, 9), (found, name)
    assert (found.accessed_ns, found.modified_ns) == (-5, 1_700_000_000_123_456_789), found
    volume.utime("/file", times=(1.5, 2))
    assert volume.stat("/file").modified_ns == 2 * 10**9 and volume.stat("/file").accessed_ns == 1_500_000_000
    volume.utime("/file")
    assert abs(volume.stat("/file").modified_ns - time.time_ns()) < 10**11
    volume.setxattr("/file", "user.one", b"1")
    volume.setxattr("/file", "user.two", b"\0" * 600, os.XATTR_CREATE)
    for flags, wanted in ((os.XATTR_CREATE, errno.EEXIST), (os.XATTR_REPLACE, errno.ENODATA)):
        try:
            volume.setxattr("/file", "user.one" if wanted == errno.EEXIST else "user.no", b"x", flags)
            raise AssertionError(flags)
        except OSError as error:
            assert error.errno == wanted, error
    assert sorted(volume.listxattr("/file")) == ["user.one", "user.two"]
    assert volume.getxattr("/name", "user.two") == b"\0" * 600
    volume.removexattr("/file", "user.one")
    assert volume.xattrs("/file") == [("user.two", b"\0" * 600)] and volume.xattrs("/name") == []
    volume.mknod("/pipe", stat.S_IFIFO | 0o640)
    volume.mknod("/disk", stat.S_IFBLK | 0o600, os.makedev(8, 300))
    assert stat.S_ISFIFO(volume.stat("/pipe").mode) and volume.stat("/disk").device == os.makedev(8, 300)
    for wrong in (lambda: volume.chmod("/file", 2**16), lambda: volume.chown("/file", 2**32, 0),
                  lambda: volume.utime("/file", ns=(2**100, 0)), lambda: volume.mknod("/x", stat.S_IFCHR, 2**40)):
        try:
            wrong()
            raise AssertionError("a number that does not fit")
        except OverflowError:
            pass
    space = volume.statvfs()
    assert space.f_bsize == 1024 and 0 < space.f_bavail <= space.f_bfree < space.f_blocks < 65536, space
    for path in ("/file", "/name", "/pipe", "/disk"):
        volume.unlink(path)

# Trees go in and out.
os.makedirs("tree/dir/empty")
with open("tree/dir/sparse", "wb") as file:
    file.seek(5 << 20)
    file.write(b"end")
with open("tree/one", "wb") as file:
    file.write(os.urandom(3_000_000))
os.link("tree/one", "tree/dir/two")
os.symlink("../one", "tree/dir/link")
os.mkfifo("tree/pipe")
os.chmod("tree/dir", 0o550)
os.utime("tree/dir", ns=(1, 1_234_567_890_123_456_789))
with extant.open("new.img", write=True) as volume:
    volume.copy_in("tree", "/tree")
    assert volume.stat("/tree/dir/sparse").sectors < 64, volume.stat("/tree/dir/sparse")
    assert volume.stat("/tree/one").ino == volume.stat("/tree/dir/two").ino
    volume.copy_out("/tree", "tree-out")
    for refused in (lambda: volume.copy_in("tree", "/tree"), lambda: volume.copy_out("/tree", "tree-out")):
        try:
            refused()
            raise AssertionError("it was there")
        except FileExistsError:
            pass
    volume.rmtree("/tree")
shown = [sorted((str(path.relative_to(top)), path.lstat().st_mode, path.lstat().st_nlink, path.lstat().st_mtime_ns,
                 path.read_bytes() if path.is_file() else os.readlink(path) if path.is_symlink() else b"")
                for path in pathlib.Path(top).rglob("*")) for top in ("tree", "tree-out")]
assert shown[0] == shown[1] and len(shown[0]) == 7, shown
assert os.stat("tree-out/dir/sparse").st_blocks < 64
os.chmod("tree/dir", 0o750)
os.chmod("tree-out/dir", 0o750)

# A volume inside an image; sizes; a journal.
with open("disk.img", "wb") as disk, open("new.img", "rb") as whole:
    disk.seek(1 << 20)
    shutil.copyfileobj(whole, disk)
with extant.open("disk.img", write=True, offset=1 << 20) as volume:
    volume.write("/inside", b"x")
assert extant.check("disk.img", offset=1 << 20).clean and not extant.replay("disk.img", offset=1 << 20)
for wrong in (0, 3, 1 << 40):
    try:
        extant.open("disk.img", offset=wrong)
        raise AssertionError(wrong)
    except OSError as error:
        assert error.strerror, error
smallest = extant.resize("new.img", "min")
assert smallest < 64 << 20 == extant.resize("new.img", 64 << 20) == os.path.getsize("new.img")
assert extant.check("new.img").clean
for wrong in (0, "max"):
    try:
        extant.resize("new.img", wrong)
        raise AssertionError(wrong)
    except ValueError:
        pass

# Images are built, and volumes tuned, with every option of the command.
os.makedirs("more/etc")
with open("more/etc/extra", "w") as file:
    file.write("extra")
with open("more/left.o", "wb") as file:
    file.write(bytes(1 << 20) + b"end")
options = dict(
    free=1 << 20, owner=(1, 2), mode="u+rwX,go=", exclude=["*.o", "!left.o"], one_file_system=True, block_size=1024,
    features=["^orphan_file", "quota"], inode_size=512, label="options", uuid="3f2b91c4-58a0-4d7c-9a1e-6c0d5e8f7a21",
    reserved=1.5, journal=4 << 20, blocks_per_group=4096, flex_groups=4, inodes=500, source_date_epoch=77, threads=2,
    spool_dir=".", max_size=1 << 30, format="dir", keep_going=True, left_out=[], type="ext4",
)
size = extant.build(["source", "more"], "options.img", **options)
again = extant.build(("source", "more"), "again.img", **options)
assert size == again and open("options.img", "rb").read() == open("again.img", "rb").read() and options["left_out"] == []
report = extant.check("options.img")
assert report.clean, report
with extant.open("options.img") as volume:
    assert volume.read("/etc/hostname") == b"built\n" and volume.read("/etc/extra") == b"extra"
    found, holes = volume.stat("/etc/extra"), volume.stat("/left.o")
    assert (found.uid, found.gid, stat.S_IMODE(found.mode), found.modified_ns) == (1, 2, 0o600, 77 * 10**9), found
    assert holes.size == (1 << 20) + 3 and holes.sectors < 64, holes
    space = volume.statvfs()
    assert space.f_bsize == 1024 and space.f_files >= 500 and space.f_bfree - space.f_bavail >= space.f_blocks // 80, space
with open("options.img", "rb") as raw:
    raw.seek(1024)
    superblock = raw.read(1024)
assert superblock[0x78:0x80] == b"options\0" and superblock[0x68:0x6C].hex() == "3f2b91c4"
assert int.from_bytes(superblock[0x20:0x24], "little") == 4096 and int.from_bytes(superblock[0x58:0x5A], "little") == 512
assert extant.build("source", "sized.img", size=32 << 20, random=True, uuid="random", compat="kernel-4.19") == 32 << 20
for wrong, error in (
    (dict(owner=(2**32, 0)), OverflowError), (dict(inodes=-1), ValueError), (dict(threads=2**20), OverflowError),
    (dict(size=1, free=1), OSError), (dict(compat="none"), OSError), (dict(features="no_such"), OSError),
    (dict(uuid="none"), ValueError), (dict(max_size=1, format="tar"), OSError),
):
    try:
        extant.build("source", "wrong.img", **wrong)
        raise AssertionError(wrong)
    except error:
        pass
assert not os.path.exists("wrong.img")
extant.tune(
    "options.img", label="tuned", uuid="clear", features="^quota", reserved=0, reserved_user=7, reserved_group=8,
    errors="remount-ro", mount_options="acl,^user_xattr", mount_text="noatime", max_mounts=-1, interval=86400,
)
with open("options.img", "rb") as raw:
    raw.seek(1024)
    superblock = raw.read(1024)
assert superblock[0x78:0x7E] == b"tuned\0" and superblock[0x68:0x78] == bytes(16)
assert superblock[0x3C] == 2 and superblock[0x36:0x38] == b"\xff\xff" and superblock[0x50:0x54] == b"\7\0\x08\0"
assert int.from_bytes(superblock[0x44:0x48], "little") == 86400 and superblock[0x200:0x207] == b"noatime"
extant.tune("options.img", features=["^has_journal"])
extant.tune("options.img", journal=2 << 20, reserved_blocks=5)
report = extant.check("options.img")
assert report.clean, report
for wrong in (dict(label="longer than sixteen bytes"), dict(errors="none"), dict(mount_options="none")):
    try:
        extant.tune("options.img", **wrong)
        raise AssertionError(wrong)
    except OSError as error:
        assert error.errno == errno.EINVAL and error.strerror, error
for function, wanted in zip((extant.build, extant.tune), open("options").read().splitlines(), strict=True):
    missing = set(wanted.replace("-", "_").split()) - set(inspect.signature(function).parameters)
    assert not missing, (function, missing)

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
