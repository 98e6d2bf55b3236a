package logical

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
)

// checkpoint is a point between two transactions in the order of their commits.
type checkpoint struct {
	Server   string `json:"server"`   // the running server: its database cluster, "@", its start
	Timeline int32  `json:"timeline"` // the cluster's history that the position belongs to
	LSN      lsn    `json:"lsn"`      // the end of a commit, or of what the server had read without one
	Table    string `json:"watched"`  // the text of tableState
	Files    string `json:"files"`    // the sum of tableState
}

// String returns the checkpoint as text for the caller to store.
func (p checkpoint) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		return "" // never happens: the struct has only text
	}
	return string(text)
}

// system returns the database cluster that the position belongs to.
func (p checkpoint) system() string {
	system, _, _ := strings.Cut(p.Server, "@")
	return system
}

func parseCheckpoint(text string) (p checkpoint, err error) {
	if err := json.Unmarshal([]byte(text), &p); err != nil || !strings.Contains(p.Server, "@") || p.Timeline == 0 || p.LSN == 0 || p.Table == "" {
		return p, fmt.Errorf("%.100q is no position of logical replication", text)
	}
	return p, nil
}

// lsn is a position in the write-ahead log.
type lsn pglogrepl.LSN

func (l lsn) String() string { return pglogrepl.LSN(l).String() }

// MarshalText implements encoding.TextMarshaler.
func (l lsn) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lsn) UnmarshalText(text []byte) error {
	at, err := pglogrepl.ParseLSN(string(text))
	*l = lsn(at)
	return err
}

// The sizes of the headers of a page and of a file of the log: MAXALIGNed XLogPageHeaderData and
// XLogLongPageHeaderData (access/xlog_internal.h).
const (
	pageHeader = 24
	fileHeader = 40
)

// pages are the sizes of the log's pages and files.
type pages struct{ page, file uint64 }

// end returns the end of the last record before the insert position. If the last record filled a
// page, the server's insert position is behind the next page's header. No record ends there, so the
// follower would never reach it.
func (p pages) end(insert lsn) lsn {
	switch at := uint64(insert); {
	case at%p.file == fileHeader:
		return insert - fileHeader
	case at%p.page == pageHeader && at%p.file > p.page:
		return insert - pageHeader
	}
	return insert
}
