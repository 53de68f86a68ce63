/* libextant: ext4 volumes in user space, journaled and crash safe.
 *
 * Every function that returns int or int64_t returns a negative errno when it fails;
 * extant_message() then describes what failed and where. Several threads may use a volume or a file
 * at the same time, but only one at a time may use a list. Paths lead from the root of the volume.
 * Paths and names are bytes, not text. Use only handles that are open; closing NULL does nothing.
 * Close files and lists before their volume.
 */
#ifndef EXTANT_H
#define EXTANT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct extant_volume extant_volume;
typedef struct extant_file extant_file;
typedef struct extant_list extant_list;

/* Flags of extant_open and extant_file_open. */
#define EXTANT_READ 0u
#define EXTANT_WRITE 1u     /* open for changes */
#define EXTANT_CREATE 2u    /* files: create it if it is missing */
#define EXTANT_EXCLUSIVE 4u /* files, with EXTANT_CREATE: fail with EEXIST if it exists */
#define EXTANT_TRUNCATE 8u  /* files, with EXTANT_WRITE: remove its content */
/* Flags of functions that take a path and flags. */
#define EXTANT_NOFOLLOW 16u /* do not follow a symbolic link at the path's end */
#define EXTANT_REPLACE 32u  /* extant_setxattr: fail with ENODATA if it is missing */

struct extant_time {
    int64_t sec; /* since 1970-01-01 UTC */
    uint32_t nsec;
    uint32_t reserved;
};

struct extant_stat {
    uint64_t ino;
    uint64_t size;    /* bytes */
    uint64_t sectors; /* allocated, of 512 bytes */
    uint32_t mode;    /* file type and permissions, as st_mode */
    uint32_t links;
    uint32_t uid;
    uint32_t gid;
    struct extant_time accessed;
    struct extant_time modified;
    struct extant_time changed;
    uint32_t device_major; /* of a device file; 0 for others */
    uint32_t device_minor;
};

struct extant_space {
    uint32_t block_bytes;
    uint32_t reserved;
    uint64_t blocks; /* usable for data and its maps */
    uint64_t free;
    uint64_t available; /* free, and not reserved for root */
    uint64_t inodes;
    uint64_t free_inodes;
};

struct extant_entry {
    const char *path; /* a name, or in a walk a path; valid until the next call with this list */
    uint64_t ino;
    uint32_t kind;  /* S_IFREG, S_IFDIR, ... */
    uint32_t depth; /* in a walk: levels below its start */
};

/* The library's version, as "0.1.0". */
const char *extant_version(void);
/* The message of the last failed call of this thread; valid until the next call that fails. */
const char *extant_message(void);

/* Opens the volume in an image file or on a block device, or on a disk that has one volume only;
 * "disk.img?partition=2" names a partition, as do ?partuuid=, ?partlabel=, ?label= and ?uuid=, here
 * and wherever an image is named. Without EXTANT_WRITE nothing is written to it: a journal that
 * needs recovery is recovered in memory. */
int extant_open(const char *image, unsigned flags, extant_volume **volume);
/* The same for a volume that starts offset bytes inside the file or device, such as a partition. */
int extant_open_at(const char *image, uint64_t offset, unsigned flags, extant_volume **volume);
/* Makes everything durable and closes the volume. The handle is closed even if this fails. */
int extant_close(extant_volume *volume);
/* Makes all earlier changes durable. */
int extant_sync(extant_volume *volume);

int extant_stat(extant_volume *volume, const char *path, struct extant_stat *out);
/* Does not follow a symbolic link at the path's end. */
int extant_lstat(extant_volume *volume, const char *path, struct extant_stat *out);
/* Copies up to len bytes of a link's target, without a NUL. Returns the whole length. */
int64_t extant_readlink(extant_volume *volume, const char *path, char *buf, size_t len);

int extant_mkdir(extant_volume *volume, const char *path, uint32_t mode);
int extant_rmdir(extant_volume *volume, const char *path);
/* Makes the directory and all missing ones above it. An existing directory is no error. */
int extant_mkdir_all(extant_volume *volume, const char *path, uint32_t mode);
/* Removes the directory and everything below it; symbolic links are not followed. What was removed
 * before an error stays removed. */
int extant_rmdir_all(extant_volume *volume, const char *path);
int extant_unlink(extant_volume *volume, const char *path);
int extant_rename(extant_volume *volume, const char *from, const char *to);
int extant_symlink(extant_volume *volume, const char *target, const char *path);
int extant_link(extant_volume *volume, const char *original, const char *path);

/* Makes a pipe, socket, device or empty file. mode contains the file type (S_IFIFO, ...) and the
 * permissions; major and minor are the numbers of a device. */
int extant_mknod(extant_volume *volume, const char *path, uint32_t mode, uint32_t major, uint32_t minor);

/* mode: permissions, up to 07777. */
int extant_chmod(extant_volume *volume, const char *path, uint32_t mode);
/* UINT32_MAX keeps the owner or the group. */
int extant_chown(extant_volume *volume, const char *path, uint32_t uid, uint32_t gid, unsigned flags);
/* NULL keeps a time. If both are NULL, both are set to the current time. */
int extant_utime(extant_volume *volume, const char *path, const struct extant_time *accessed,
                 const struct extant_time *modified, unsigned flags);
/* Copies up to len bytes of the value of an extended attribute ("user.name"). Returns the whole
 * length. */
int64_t extant_getxattr(extant_volume *volume, const char *path, const char *name, void *buf, size_t len,
                        unsigned flags);
/* Copies up to len bytes of all their names, each with a NUL after it. Returns the whole length. */
int64_t extant_listxattr(extant_volume *volume, const char *path, char *buf, size_t len, unsigned flags);
/* With EXTANT_EXCLUSIVE it fails with EEXIST if the attribute exists. */
int extant_setxattr(extant_volume *volume, const char *path, const char *name, const void *value,
                    size_t len, unsigned flags);
int extant_removexattr(extant_volume *volume, const char *path, const char *name, unsigned flags);
/* The volume's total and free space. */
int extant_space(extant_volume *volume, struct extant_space *out);

/* mode: permissions of a new file. */
int extant_file_open(extant_volume *volume, const char *path, unsigned flags, uint32_t mode,
                     extant_file **file);
int extant_file_close(extant_file *file);
/* Returns the number of bytes read: less than len only at the end of the file, and 0 after it. */
int64_t extant_file_read(extant_file *file, uint64_t offset, void *buf, size_t len);
/* Writes all len bytes and returns their number, or fails. */
int64_t extant_file_write(extant_file *file, uint64_t offset, const void *buf, size_t len);
int extant_file_truncate(extant_file *file, uint64_t size);
int extant_file_sync(extant_file *file);

/* The names in a directory, without "." and "..". */
int extant_readdir(extant_volume *volume, const char *path, extant_list **list);
/* A directory and everything below it; each directory comes before its entries. */
int extant_walk(extant_volume *volume, const char *path, extant_list **list);
/* Returns 1 with the next entry in *entry, or 0 at the end. */
int extant_list_next(extant_list *list, struct extant_entry *entry);
int extant_list_close(extant_list *list);

/* Makes an empty ext4 volume in a new file of the given bytes. block_bytes: 0 for the default, or
 * 1024 to 65536. label and features: NULL, or in mke2fs's notation ("^has_journal,casefold"). */
int extant_mkfs(const char *image, uint64_t bytes, uint32_t block_bytes, const char *label,
                const char *features);
/* Builds the smallest image that holds a directory, a tar or an OCI layout, and leaves free_bytes
 * free. *bytes, if bytes is not NULL, is set to its size. The same source gives the same image to
 * the byte. */
int extant_build(const char *source, const char *image, uint64_t free_bytes, uint64_t *bytes);
/* The same for several sources, later over earlier, with options: the long options of `extant
 * build`, as strings NAME=VALUE, or NAME for those without a value. Sizes are bytes, times seconds;
 * a UUID is 32 hexadecimal digits. Both lists end in NULL; options may be NULL. left_out, if not
 * NULL, is called with each entry that keep-going has left out. An existing image is replaced. */
int extant_build_with(const char *const *sources, const char *image, const char *const *options,
                      void (*left_out)(void *context, const char *line, int damage), void *context,
                      uint64_t *bytes);
/* Checks a volume and writes nothing. Returns 0: consistent, 4: damaged, 8: could not be checked.
 * finding, if not NULL, is called with each finding as a line; damage is 0 if the finding is only a
 * remark. */
int extant_check(const char *image, void (*finding)(void *context, const char *line, int damage),
                 void *context);
/* The same for a volume that starts offset bytes inside the file or device. */
int extant_check_at(const char *image, uint64_t offset,
                    void (*finding)(void *context, const char *line, int damage), void *context);
/* Makes a volume larger or smaller, and its file with it; the content stays. bytes: its new size;
 * 0: all of the file or device; UINT64_MAX: as small as the content allows. *resized, if resized is
 * not NULL, is set to the new size. */
int extant_resize(const char *image, uint64_t bytes, uint64_t *resized);
/* Changes the settings of the volume that starts at offset: the long options of `extant tune`, as a
 * list of strings like that of extant_build_with. Users and groups are numbers. */
int extant_tune(const char *image, uint64_t offset, const char *const *options);
/* Recovers the volume that starts at offset from its journal, and writes the result to the image.
 * Returns 1 if that was needed, else 0. */
int extant_replay(const char *image, uint64_t offset);

#ifdef __cplusplus
}
#endif
#endif
