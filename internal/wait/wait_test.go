package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, cause := time.Now(), errors.New("enough")
		if err := For(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if err := For(ctx, time.Minute); !errors.Is(err, cause) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := For(ctx, 0); err != nil {
			t.Errorf("no wait: %v", err)
		}
	})
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		n := 0
		for now := range Every(ctx, 10*time.Second) {
			if n++; now.Sub(began) != time.Duration(n)*10*time.Second {
				t.Errorf("tick %d after %v", n, now.Sub(began))
			}
		}
		if n != 3 || time.Since(began) != 35*time.Second {
			t.Errorf("%d ticks in %v", n, time.Since(began))
		}
		for range Every(t.Context(), time.Second) {
			break
		}
	})
}
