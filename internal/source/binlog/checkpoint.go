package binlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"
)

// checkpoint is a point between two transactions of a server's binary log.
//
// On the server where it was taken, it is File and Pos. They mean nothing on other servers. After
// RESET MASTER the same file names start again, so Server and Created identify the file. On other
// servers it is GTIDs, the transactions before it.
type checkpoint struct {
	Server  string `json:"server"`
	File    string `json:"file,omitempty"`
	Pos     uint64 `json:"pos,omitempty"`
	Created uint32 `json:"born,omitempty"` // start of File in Unix seconds; 0: unknown
	GTIDs   gtids  `json:"gtid,omitzero"`  // empty if transactions have no GTIDs
	// Prepared are XA transactions whose rows come before the first checkpoint, and that were not
	// committed by then. The log has them as hexadecimal text.
	Prepared []string `json:"xa,omitempty"`
}

// String returns the checkpoint as text for the caller to store.
func (p checkpoint) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		return "" // never happens: the struct has only text and numbers
	}
	return string(text)
}

func parseCheckpoint(text string) (p checkpoint, err error) {
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("%.100q is no position in a binary log", text)
	}
	if p.Server == "" || p.File == "" && p.GTIDs.IsZero() {
		return p, fmt.Errorf("%.100q is no position in a binary log", text)
	}
	return p, nil
}

// compare orders two positions in one server's log. It reports false if the file names differ in
// more than their number, as after a new configuration.
func compare(file string, pos uint64, otherFile string, otherPos uint64) (order int, ok bool) {
	base, number := cutNumber(file)
	otherBase, otherNumber := cutNumber(otherFile)
	if base != otherBase || number == "" || otherNumber == "" {
		return 0, false
	}
	return cmp.Or(
		cmp.Compare(len(number), len(otherNumber)),
		cmp.Compare(number, otherNumber),
		cmp.Compare(pos, otherPos),
	), true
}

// cutNumber cuts "mysqld-bin.000042" into its name and "42".
func cutNumber(file string) (base, number string) {
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 {
		return file, ""
	}
	if number = strings.TrimLeft(file[dot+1:], "0"); number == "" {
		number = "0"
	}
	return file[:dot], number
}

// gtids are the transactions that a server has logged: in MariaDB the last one of each domain
// ("0-1-42"), in MySQL sets of intervals for each server. The zero value is for a server whose
// transactions have no GTIDs.
type gtids struct {
	flavor string
	set    mysql.GTIDSet
}

// parseGTIDs parses a set as the server writes it.
func parseGTIDs(flavor, text string) (gtids, error) {
	set, err := mysql.ParseGTIDSet(flavor, strings.Join(strings.Fields(text), ""))
	if err != nil {
		return gtids{}, fmt.Errorf("reading the GTIDs %.100q: %w", text, err)
	}
	return gtids{flavor, set}, nil
}

// IsZero reports whether transactions have no GTIDs.
func (g gtids) IsZero() bool { return g.set == nil }

// MarshalText implements encoding.TextMarshaler.
func (g gtids) MarshalText() ([]byte, error) {
	if g.set == nil {
		return nil, nil
	}
	return []byte(g.flavor + ":" + g.set.String()), nil
}

// add adds the transaction of a GTID event.
func (g gtids) add(event any) {
	switch set := g.set.(type) {
	case *mysql.MariadbGTIDSet:
		if e, ok := event.(*replication.MariadbGTIDEvent); ok {
			set.Sets[e.GTID.DomainID] = e.GTID.Clone()
		}
	case *mysql.MysqlGTIDSet:
		e, ok := event.(*replication.GTIDEvent)
		if tagged, is := event.(*replication.GtidTaggedLogEvent); is {
			e, ok = &tagged.GTIDEvent, true
		}
		if !ok || e.GNO == 0 {
			return // the transaction is anonymous
		}
		if id, err := uuid.FromBytes(e.SID); err == nil {
			set.AddGTIDWithTag(id, e.Tag, e.GNO)
		}
	}
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *gtids) UnmarshalText(text []byte) (err error) {
	flavor, set, _ := strings.Cut(string(text), ":")
	if flavor != mysql.MariaDBFlavor && flavor != mysql.MySQLFlavor {
		return fmt.Errorf("GTIDs %.100q", text)
	}
	*g, err = parseGTIDs(flavor, set)
	return err
}
