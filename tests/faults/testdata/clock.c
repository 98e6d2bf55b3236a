// A clock that a test can set, for a server that is started with this library in
// LD_PRELOAD: the time of day is the machine's plus the microseconds at the beginning of
// the file that CLOCK_OFFSET names. Other clocks run on, as they do when somebody sets
// the time.
//
// libfaketime would do, but for allocators that ask for the time before it is ready.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset; // NULL: none yet

__attribute__((constructor)) static void find(void) {
  const char *path = getenv("CLOCK_OFFSET");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *at = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) offset = at;
}

static void shift(int64_t *seconds, int64_t *fraction, int64_t per_second) {
  int64_t us = offset ? *offset : 0;
  *seconds += us / 1000000;
  *fraction += us % 1000000 * (per_second / 1000000);
  if (*fraction < 0) *fraction += per_second, --*seconds;
  if (*fraction >= per_second) *fraction -= per_second, ++*seconds;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  if (syscall(SYS_gettimeofday, tv, zone)) return -1;
  int64_t seconds = tv->tv_sec, fraction = tv->tv_usec;
  shift(&seconds, &fraction, 1000000);
  tv->tv_sec = seconds, tv->tv_usec = fraction;
  return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
  if (syscall(SYS_clock_gettime, clock, ts)) return -1;
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return 0;
  int64_t seconds = ts->tv_sec, fraction = ts->tv_nsec;
  shift(&seconds, &fraction, 1000000000);
  ts->tv_sec = seconds, ts->tv_nsec = fraction;
  return 0;
}

time_t time(time_t *out) {
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts)) return -1;
  if (out) *out = ts.tv_sec;
  return ts.tv_sec;
}
