//! The structs of the protocol. Each one's size is checked against the protocol's.

#![expect(missing_debug_implementations, reason = "of types that zerocopy's derive makes")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident[$bytes:literal] { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[expect(missing_docs, reason = "the names are those of linux/fuse.h")]
        pub struct $name { $(pub $field: $kind,)* }
        const _: () = assert!(size_of::<$name>() == $bytes);

        impl Default for $name {
            fn default() -> $name {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )*};
}

wire! {
    /// Header of every request.
    InHeader[40] {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    /// Header of every reply; `error` is 0 or a negated errno.
    OutHeader[16] {
        len: u32,
        error: i32,
        unique: u64,
    }
    /// The attributes that `stat` shows.
    Attr[88] {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    /// The file that a name leads to.
    EntryOut[128] {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    /// FORGET.
    ForgetIn[8] {
        nlookup: u64,
    }
    /// One record of BATCH_FORGET.
    ForgetOne[16] {
        nodeid: u64,
        nlookup: u64,
    }
    /// BATCH_FORGET; `count` of [`ForgetOne`] follow.
    BatchForgetIn[8] {
        count: u32,
        dummy: u32,
    }
    /// GETATTR.
    GetattrIn[16] {
        getattr_flags: u32,
        dummy: u32,
        fh: u64,
    }
    /// Reply to GETATTR and SETATTR.
    AttrOut[104] {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: Attr,
    }
    /// A time in STATX.
    SxTime[16] {
        tv_sec: i64,
        tv_nsec: u32,
        reserved: i32,
    }
    /// The attributes that `statx` shows.
    Statx[256] {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    /// STATX.
    StatxIn[24] {
        getattr_flags: u32,
        reserved: u32,
        fh: u64,
        sx_flags: u32,
        sx_mask: u32,
    }
    /// Reply to STATX.
    StatxOut[288] {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: Statx,
    }
    /// MKNOD; a name follows.
    MknodIn[16] {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }
    /// MKDIR; a name follows.
    MkdirIn[8] {
        mode: u32,
        umask: u32,
    }
    /// RENAME; old and new name follow.
    RenameIn[8] {
        newdir: u64,
    }
    /// RENAME2; old and new name follow.
    Rename2In[16] {
        newdir: u64,
        flags: u32,
        padding: u32,
    }
    /// LINK; the new name follows.
    LinkIn[8] {
        oldnodeid: u64,
    }
    /// SETATTR.
    SetattrIn[88] {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    /// OPEN and OPENDIR.
    OpenIn[8] {
        flags: u32,
        open_flags: u32,
    }
    /// CREATE and TMPFILE; a name follows.
    CreateIn[16] {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    /// Reply to OPEN and OPENDIR; follows an [`EntryOut`] in the reply to CREATE and TMPFILE.
    OpenOut[16] {
        fh: u64,
        open_flags: u32,
        backing_id: i32,
    }
    /// RELEASE and RELEASEDIR.
    ReleaseIn[24] {
        fh: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }
    /// FLUSH.
    FlushIn[24] {
        fh: u64,
        unused: u32,
        padding: u32,
        lock_owner: u64,
    }
    /// READ, READDIR and READDIRPLUS.
    ReadIn[40] {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// WRITE; `size` bytes follow.
    WriteIn[40] {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// Reply to WRITE and COPY_FILE_RANGE.
    WriteOut[8] {
        size: u32,
        padding: u32,
    }
    /// Reply to COPY_FILE_RANGE_64.
    CopyFileRangeOut[8] {
        bytes_copied: u64,
    }
    /// Reply to STATFS.
    StatfsOut[80] {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    /// FSYNC and FSYNCDIR.
    FsyncIn[16] {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }
    /// SETXATTR; name and value follow. Without SETXATTR_EXT only the first 8 bytes are sent.
    SetxattrIn[16] {
        size: u32,
        flags: u32,
        setxattr_flags: u32,
        padding: u32,
    }
    /// GETXATTR, followed by a name, and LISTXATTR.
    GetxattrIn[8] {
        size: u32,
        padding: u32,
    }
    /// Reply to a GETXATTR or LISTXATTR that requested the length.
    GetxattrOut[8] {
        size: u32,
        padding: u32,
    }
    /// GETLK, SETLK and SETLKW.
    LkIn[48] {
        fh: u64,
        owner: u64,
        start: u64,
        end: u64,
        kind: u32,
        pid: u32,
        lk_flags: u32,
        padding: u32,
    }
    /// ACCESS.
    AccessIn[8] {
        mask: u32,
        padding: u32,
    }
    /// INIT: what the kernel offers.
    InitIn[64] {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }
    /// Reply to INIT: what the server accepted.
    InitOut[64] {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    /// INTERRUPT.
    InterruptIn[8] {
        unique: u64,
    }
    /// BMAP.
    BmapIn[16] {
        block: u64,
        blocksize: u32,
        padding: u32,
    }
    /// Reply to BMAP.
    BmapOut[8] {
        block: u64,
    }
    /// IOCTL; `in_size` bytes follow.
    IoctlIn[32] {
        fh: u64,
        flags: u32,
        cmd: u32,
        arg: u64,
        in_size: u32,
        out_size: u32,
    }
    /// Reply to IOCTL; the answer's bytes follow.
    IoctlOut[16] {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }
    /// Notification that an inode's attributes have changed, and its data from `off` on. With a
    /// negative `off` only the attributes have changed.
    NotifyInvalInode[24] {
        ino: u64,
        off: i64,
        len: i64,
    }
    /// POLL.
    PollIn[24] {
        fh: u64,
        kh: u64,
        flags: u32,
        events: u32,
    }
    /// FALLOCATE.
    FallocateIn[32] {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
        padding: u32,
    }
    /// LSEEK.
    LseekIn[24] {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }
    /// Reply to LSEEK.
    LseekOut[8] {
        offset: u64,
    }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    CopyFileRangeIn[56] {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    /// SYNCFS.
    SyncfsIn[8] {
        padding: u64,
    }
    /// One entry of a listing. The name follows, padded to a multiple of 8 bytes.
    Dirent[24] {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }
    /// Part of `UringReqHeader`: the id that commits the reply, and the payload's length.
    UringEntInOut[32] {
        flags: u64,
        commit_id: u64,
        payload_sz: u32,
        padding: u32,
        reserved: u64,
    }
    /// A request of a ring and its reply: headers, the operation's struct, and `UringEntInOut`.
    UringReqHeader[288] {
        in_out: [u8; 128],
        op_in: [u8; 128],
        ring_ent_in_out: UringEntInOut,
    }
    /// Contents of the command area of a ring's submission.
    UringCmdReq[24] {
        flags: u64,
        commit_id: u64,
        qid: u16,
        padding: [u8; 6],
    }
}
