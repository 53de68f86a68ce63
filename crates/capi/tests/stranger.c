/* A program that knows of extant only what its header says. */
#include <extant.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void need(int holds, const char *what, int line) {
    if (!holds) {
        fprintf(stderr, "line %d: %s\n  last message: %s\n", line, what, extant_message());
        exit(1);
    }
}
#define NEED(it) need(it, #it, __LINE__)

static void hear(void *count, const char *line, int damage) {
    printf("%d %s\n", damage, line);
    ++*(int *)count;
}

static void fill(const char *image) {
    extant_volume *v = NULL;
    extant_file *f = NULL;
    char text[64] = {0};
    NEED(extant_mkfs(image, 64u << 20, 4096, "stranger", NULL) == 0);
    NEED(extant_mkfs(image, 64u << 20, 0, NULL, NULL) == -EEXIST);
    NEED(extant_open(image, EXTANT_WRITE, &v) == 0);
    NEED(extant_mkdir(v, "/srv", 0750) == 0);
    NEED(extant_file_open(v, "/srv/config", EXTANT_WRITE | EXTANT_CREATE, 0640, &f) == 0);
    NEED(extant_file_write(f, 0, "answer = 41\n", 12) == 12);
    NEED(extant_file_write(f, 10, "2", 1) == 1);
    NEED(extant_file_sync(f) == 0);
    NEED(extant_file_read(f, 0, text, sizeof text) == 12);
    NEED(strcmp(text, "answer = 42\n") == 0);
    NEED(extant_file_close(f) == 0);
    NEED(extant_file_open(v, "/srv/config", EXTANT_CREATE | EXTANT_EXCLUSIVE, 0600, &f) == -EEXIST);
    NEED(extant_file_open(v, "/srv/config", EXTANT_WRITE | EXTANT_TRUNCATE, 0, &f) == 0);
    NEED(extant_file_write(f, 4096, "end", 3) == 3);
    NEED(extant_file_truncate(f, 4098) == 0);
    NEED(extant_file_close(f) == 0);
    NEED(extant_file_open(v, "/srv/config", EXTANT_READ, 0, &f) == 0);
    NEED(extant_file_write(f, 0, "no", 2) == -EINVAL);
    NEED(extant_file_close(f) == 0);
    NEED(extant_symlink(v, "config", "/srv/link") == 0);
    NEED(extant_link(v, "/srv/config", "/srv/hard") == 0);
    NEED(extant_rename(v, "/srv/hard", "/srv/second") == 0);
    NEED(extant_mkdir(v, "/gone", 0700) == 0);
    NEED(extant_rmdir(v, "/srv") == -ENOTEMPTY);
    NEED(extant_rmdir(v, "/gone") == 0);
    NEED(extant_mkdir_all(v, "/deep/er/still", 0700) == 0);
    NEED(extant_mkdir_all(v, "/deep/er/still", 0700) == 0);
    NEED(extant_mkdir_all(v, "/srv/config", 0700) == -EEXIST);
    NEED(extant_rmdir_all(v, "/srv/config") == -ENOTDIR);
    NEED(extant_rmdir_all(v, "/deep") == 0);
    NEED(extant_rmdir_all(v, "/deep") == -ENOENT);
    NEED(extant_unlink(v, "/nothing") == -ENOENT);
    NEED(strstr(extant_message(), "no such file") != NULL);
    NEED(extant_sync(v) == 0);
    NEED(extant_close(v) == 0);
}

static void look(const char *image) {
    extant_volume *v = NULL;
    extant_list *l = NULL;
    struct extant_entry e;
    struct extant_stat s;
    char target[4];
    int names = 0, below = 0, more;
    NEED(extant_open(image, EXTANT_READ, &v) == 0);
    NEED(extant_mkdir(v, "/no", 0755) == -EROFS);
    NEED(extant_stat(v, "/srv/link", &s) == 0);
    NEED(S_ISREG(s.mode) && (s.mode & 07777) == 0640 && s.size == 4098 && s.links == 2);
    NEED(extant_lstat(v, "/srv/link", &s) == 0 && S_ISLNK(s.mode) && s.size == 6);
    NEED(s.modified.sec > 1600000000);
    NEED(extant_readlink(v, "/srv/link", target, sizeof target) == 6);
    NEED(memcmp(target, "conf", 4) == 0);
    NEED(extant_readdir(v, "/srv", &l) == 0);
    while ((more = extant_list_next(l, &e)) == 1) {
        names++;
        NEED(strchr(e.path, '/') == NULL && e.ino > 10);
    }
    NEED(more == 0 && names == 3);
    NEED(extant_list_close(l) == 0);
    NEED(extant_walk(v, "/", &l) == 0);
    while ((more = extant_list_next(l, &e)) == 1) {
        if (e.depth == 0) NEED(strcmp(e.path, "/") == 0 && e.kind == S_IFDIR && e.ino == 2);
        if (strncmp(e.path, "/srv/", 5) == 0) below++;
    }
    NEED(more == 0 && below == 3);
    NEED(extant_list_close(l) == 0);
    NEED(extant_close(v) == 0);
}

static void whole(const char *image, const char *source, const char *built) {
    uint64_t bytes = 0;
    int found = 0;
    FILE *raw;
    NEED(extant_check(image, hear, &found) == 0 && found == 0);
    NEED(extant_build(source, built, 1u << 20, &bytes) == 0 && bytes > 1u << 20);
    NEED(extant_check(built, NULL, NULL) == 0);
    NEED(extant_build("/no/such/source", "/no/such/image", 0, NULL) == -ENOENT);
    {
        const char *const sources[] = {source, NULL};
        const char *const options[] = {"size=8388608", "label=by name", "exclude=*.o", "random", NULL};
        const char *const unknown[] = {"lable=x", NULL}, *const bare[] = {"size", NULL}, *const none[] = {NULL};
        const char *const tuned[] = {"label=tuned", "reserved=0", NULL};
        NEED(extant_build_with(sources, built, options, hear, &found, &bytes) == 0);
        NEED(bytes == 8u << 20 && found == 0);
        NEED(extant_build_with(sources, built, NULL, NULL, NULL, NULL) == 0);
        NEED(extant_build_with(none, built, NULL, NULL, NULL, NULL) == -EINVAL);
        NEED(extant_build_with(sources, built, unknown, NULL, NULL, NULL) == -EINVAL);
        NEED(strstr(extant_message(), "lable") != NULL);
        NEED(extant_build_with(sources, built, bare, NULL, NULL, NULL) == -EINVAL);
        NEED(extant_tune(built, 0, tuned) == 0 && extant_tune(built, 0, unknown) == -EINVAL);
    }
    NEED(extant_check(built, NULL, NULL) == 0);
    /* The root directory's inode, overwritten. */
    NEED((raw = fopen(image, "r+b")) != NULL);
    NEED(fseek(raw, 1024 + 0x3A, SEEK_SET) == 0 && fputc(2, raw) == 2 && fclose(raw) == 0);
    NEED(extant_check(image, hear, &found) != 0);
}

static void misused(void) {
    extant_volume *v = NULL;
    extant_list *l = NULL;
    NEED(extant_open(NULL, EXTANT_READ, &v) == -EINVAL);
    NEED(extant_open("/no/such/image", EXTANT_READ, &v) == -ENOENT);
    NEED(extant_open("/no/such/image", 77, &v) == -EINVAL);
    NEED(extant_readdir(NULL, "/", &l) == -EINVAL);
    NEED(extant_close(NULL) == 0 && extant_file_close(NULL) == 0 && extant_list_close(NULL) == 0);
    NEED(strlen(extant_message()) > 0 && strchr(extant_version(), '.') != NULL);
}

/* stranger IMAGE COPY SOURCE BUILT: COPY is filled as IMAGE is, then damaged. */
int main(int argc, char **argv) {
    NEED(argc == 5);
    misused();
    fill(argv[1]);
    look(argv[1]);
    fill(argv[2]);
    whole(argv[2], argv[3], argv[4]);
    return 0;
}
