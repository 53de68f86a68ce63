/*
 * Preloaded into linux.uml, which is a kernel that runs its processes under ptrace.
 *
 * User-mode Linux 6.1 saves and restores a process's vector registers through the regset
 * NT_X86_XSTATE with a buffer of fixed size. A processor with larger state (AMX) has a larger
 * area, and the host refuses to set only a part of it. So: fetch the whole present area, lay
 * UML's shorter one over its beginning, set the whole.
 *
 *   host's area   |legacy|header|AVX|AVX-512|PKRU| ... |AMX tiles|
 *   UML's buffer  |legacy|header|AVX|AVX-512|PKRU|
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { AREA_MAX = 64 * 1024 };
static __thread char area[AREA_MAX];

static long set_xstate(long pid, struct iovec *given)
{
    struct iovec whole = { area, AREA_MAX };
    long set = PTRACE_SETREGSET, get = PTRACE_GETREGSET;

    if (syscall(SYS_ptrace, get, pid, NT_X86_XSTATE, &whole) != 0 || whole.iov_len <= given->iov_len)
        return syscall(SYS_ptrace, set, pid, NT_X86_XSTATE, given);
    memcpy(area, given->iov_base, given->iov_len);
    return syscall(SYS_ptrace, set, pid, NT_X86_XSTATE, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list args;
    va_start(args, request);
    long pid = va_arg(args, pid_t);
    void *addr = va_arg(args, void *);
    void *data = va_arg(args, void *);
    va_end(args);

    if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE)
        return set_xstate(pid, data);
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        /* The system call stores the word; the C function returns it. */
        long word = 0;
        long failed = syscall(SYS_ptrace, (long)request, pid, addr, &word);
        if (failed < 0)
            return failed;
        errno = 0;
        return word;
    }
    return syscall(SYS_ptrace, (long)request, pid, addr, data);
}
