// Go's scheduler among Envoy's threads. Two properties suit a Go program, but not a library
// that Envoy calls some ten thousand times a second.
//
// First: a thread that has called Go keeps one of the scheduler's Ps (processors) after it
// returns to C, until Go's monitor takes the P away. With as many workers as Ps, goroutines
// wait for that. So ordergateThread adds a P for each worker. It adds none for Envoy's main
// thread, which calls Go once for each configuration: that P would stay idle, and each new
// goroutine would wake a thread to look for work on it.
//
// Second: whenever the monitor (sysmon) looks, it finds a worker's P idle and takes it. The
// worker's next call wakes the monitor. This happens some 2,000 times a second for each
// worker, and each time costs as much as a request, and more on a virtual machine. The
// monitor sleeps for 20 µs in between. A timer slack on its thread turns these into 2 ms;
// see prctl(2), PR_SET_TIMERSLACK. ordergate does not need the monitor more often, because
// it has spare Ps.
//
// In a library the monitor is the second thread that Go starts (Go 1.26: the first thread
// runs main, which starts the monitor first). If it were another thread, that thread's
// timers would be up to 2 ms late. A test checks which thread it is.

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define MONITOR 2
#define SLACK_NS 2000000UL

extern void ordergateThread(void);  // in Go

// Called by a worker before it calls Go.
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
  prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);  // an error only costs speed
  return b.run(b.arg);
}

int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*run)(void*),
                          void* arg);

// Go's runtime calls this one, by the linker's --wrap. Envoy starts its own threads without
// it.
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
