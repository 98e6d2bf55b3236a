// Go's scheduler among Envoy's threads. Two things that suit a Go program do not suit a
// library whose Go code is entered some ten thousand times a second:
//
// A thread that has entered Go keeps one of the scheduler's Ps (processors) while it is
// back in C, until the monitor takes it away. With as many workers as Ps goroutines wait
// for that, so there is one more P for each worker that comes in: see ordergateThread.
// Not for Envoy's main thread, which comes in once for each configuration: its P would
// idle ever after, and each goroutine that begins would wake a thread to look for work on it.
//
// The monitor (sysmon) finds a worker's P idle whenever it looks, takes it, and is woken
// by the worker's next entry: some 2,000 times a second and worker, each of which costs
// as much as a request, and more on a virtual machine. It sleeps for 20 µs then. So its
// thread has a timer slack that makes those 2 ms; see prctl(2), PR_SET_TIMERSLACK.
// Nothing of ordergate's waits for it: there is a P to spare.
//
// In a library it is the second thread that Go begins (Go 1.26: the first one runs main,
// whose first act is to begin the monitor). Were it another one, that one's timers would
// be up to 2 ms late. A test looks whether it is.

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define MONITOR 2
#define SLACK_NS 2000000UL

extern void ordergateThread(void);  // in Go

// Called by a worker that is about to enter Go.
void ordergate_entering(void) {
  static _Thread_local int entered;
  if (!entered) {
    entered = 1;
    ordergateThread();
  }
}

typedef struct begin {
  void* (*run)(void*);
  void* arg;
} begin;

static void* unhurried(void* arg) {
  begin b = *(begin*)arg;
  free(arg);
  prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);  // it works without, too
  return b.run(b.arg);
}

int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*run)(void*),
                          void* arg);

// What Go's runtime calls, by the linker's --wrap; Envoy's own threads are begun by Envoy.
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*run)(void*),
                          void* arg) {
  static atomic_int threads;
  begin* b;
  if (atomic_fetch_add(&threads, 1) + 1 != MONITOR || (b = malloc(sizeof *b)) == NULL)
    return __real_pthread_create(thread, attr, run, arg);
  *b = (begin){run, arg};
  int err = __real_pthread_create(thread, attr, unhurried, b);
  if (err != 0) free(b);
  return err;
}
