/* Lets a user-mode kernel run on processors with AMX.
 *
 * User-mode Linux up to 6.12 hands ptrace the first 2696 bytes of the extended processor state (all up to AVX-512).
 * Where the processor has AMX that state is 11008 bytes, and the host refuses to set a part of it (EFAULT): the guest's
 * init dies with "ptrace set fp regs failed, errno = 14". This library, preloaded by ./run on such processors only,
 * completes the part with zeros, which is the initial state of the tiles. Guests cannot use AMX: it needs a permission
 * that a user-mode kernel has no call for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XFEATURES_OFFSET 512 /* of the bit map in the XSAVE header: which components hold more than their initial state */
#define AMX_COMPONENTS (3ull << 17)

typedef long (*ptrace_function)(int, pid_t, void *, void *);

static unsigned char state[1 << 16] __attribute__((aligned(64))); /* only the kernel's one thread calls ptrace */
static size_t state_bytes;

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_function next;
	va_list arguments;
	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *addr = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (next == NULL)
		next = (ptrace_function)dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || (uintptr_t)addr != NT_X86_XSTATE)
		return next(request, pid, addr, data);

	struct iovec whole = {state, sizeof state};
	const struct iovec *part = data;
	if (state_bytes == 0) {
		if (next(PTRACE_GETREGSET, pid, addr, &whole) < 0)
			return -1;
		state_bytes = whole.iov_len;
		memset(state, 0, sizeof state);
	}
	if (part->iov_len >= state_bytes)
		return next(request, pid, addr, data);
	memcpy(state, part->iov_base, part->iov_len);
	uint64_t in_use;
	memcpy(&in_use, state + XFEATURES_OFFSET, sizeof in_use);
	in_use &= ~AMX_COMPONENTS;
	memcpy(state + XFEATURES_OFFSET, &in_use, sizeof in_use);
	whole.iov_len = state_bytes;
	return next(request, pid, addr, &whole);
}
