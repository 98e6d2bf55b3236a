// Command holder is a backend in the middle of a settlement: it takes an order's
// lock, keeps it until it is told to end, and writes to a database when asked,
// without another look at the lock. A test stops it past its lease.
//
// It logs where it listens once it has the lock. GET /fence answers the fence;
// POST /begin begins a transaction with a query (a [request]); POST /write runs
// statements in that transaction, or else in one of their own, and answers what
// became of it (a [result]).
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("holder", flag.ContinueOnError)
	server := flags.String("redis", "", "`host:port` of the Redis")
	key := flags.String("key", "", "the lock's `key`")
	lease := flags.Duration("lease", time.Second, "how long the lock is held without a renewal")
	driver := flags.String("driver", "", "mysql or pgx")
	dsn := flags.String("dsn", "", "the database")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	client := redis.NewClient(&redis.Options{Addr: *server})
	defer client.Close()
	locker, err := redislock.New(client, redislock.Options{
		Lease: *lease, Wait: redislock.Wait{UpTo: time.Minute}, MaxWaitersPerKey: 1,
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	db, err := sql.Open(*driver, *dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}

	held, err := locker.Acquire(ctx, *key)
	if err != nil {
		return err
	}
	h := &holder{db: db, driver: *driver, fence: strconv.FormatInt(held.Fence(), 10)}
	err = h.serve(ctx)
	// A lease that was lost meanwhile is what this program is for.
	if released := held.Release(context.WithoutCancel(ctx)); !errors.Is(released, redislock.ErrLost) {
		err = errors.Join(err, released)
	}
	return err
}

// holder is the backend with its fence, as the header would have it.
type holder struct {
	db     *sql.DB
	driver string
	fence  string

	mu sync.Mutex
	tx *sql.Tx // begun and not used yet, or nil
}

// request is what to do: statements with parameters such as :id, which all have
// values but for :fence, the holder's own.
type request struct {
	SQL       []string
	Params    map[string]string
	Isolation sql.IsolationLevel // of /begin
}

// result is what became of a transaction: it is rolled back at the first statement
// that changes no row, or fails.
type result struct {
	Rows  []int64 // changed, by statement, as far as it came
	Error string
}

func (h *holder) serve(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fence", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, h.fence) })
	mux.HandleFunc("POST /begin", h.answer(h.begin))
	mux.HandleFunc("POST /write", h.answer(h.write))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	slog.New(slog.NewTextHandler(os.Stdout, nil)).Info("listening", "name", "http", "addr", l.Addr())
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer serves a function of a request.
func (h *holder) answer(f func(context.Context, request) result) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f(r.Context(), req))
	}
}

// begin leaves a transaction open that has read something.
func (h *holder) begin(_ context.Context, req request) result {
	tx, err := h.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: req.Isolation})
	if err != nil {
		return result{Error: err.Error()}
	}
	h.tx = tx
	return h.exec(context.Background(), tx, req)
}

// write runs the statements and commits.
func (h *holder) write(ctx context.Context, req request) result {
	tx := h.tx
	h.tx = nil
	if tx == nil {
		var err error
		if tx, err = h.db.BeginTx(ctx, nil); err != nil {
			return result{Error: err.Error()}
		}
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	res := h.exec(ctx, tx, req)
	if res.Error != "" || len(res.Rows) < len(req.SQL) {
		return res
	}
	if err := tx.Commit(); err != nil {
		res.Error = err.Error()
	}
	return res
}

// exec runs statements up to the first that changes no row.
func (h *holder) exec(ctx context.Context, tx *sql.Tx, req request) result {
	params := maps.Clone(req.Params)
	if params == nil {
		params = make(map[string]string)
	}
	params["fence"] = h.fence
	var res result
	for _, statement := range req.SQL {
		query, args := bind(h.driver, statement, params)
		done, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			res.Error = err.Error()
			return res
		}
		n, err := done.RowsAffected()
		if err != nil {
			res.Error = err.Error()
			return res
		}
		if n == 0 {
			return res
		}
		res.Rows = append(res.Rows, n)
	}
	return res
}

// named matches a parameter, and not PostgreSQL's cast.
var named = regexp.MustCompile(`([^:]):([a-z]+)`)

// bind puts the driver's placeholders in place of the parameters' names. All
// values are text, as a header's is.
func bind(driver, statement string, params map[string]string) (string, []any) {
	var args []any
	numbers := make(map[string]int)
	query := named.ReplaceAllStringFunc(statement, func(match string) string {
		before, name := match[:1], match[2:]
		if driver == "mysql" {
			args = append(args, params[name])
			return before + "?"
		}
		if numbers[name] == 0 {
			args = append(args, params[name])
			numbers[name] = len(args)
		}
		return before + "$" + strconv.Itoa(numbers[name])
	})
	return query, args
}
