// Package source reads the IDs of existing orders from files and databases.
//
// Start with [CSV], a file with one ID a line, or with [NewTable], a table in MySQL, MariaDB or
// PostgreSQL. [Table.Read] reads a table, [Table.Tail] catches up with it. A source streams: its
// memory does not grow with the number of IDs. [Progress] shows the progress of a long read. The
// caller decides what the IDs are for, and what rows without an ID mean.
package source
