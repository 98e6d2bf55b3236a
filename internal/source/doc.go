// Package source reads the IDs of existing orders from where they are kept.
//
// Start with [CSV], a file of one ID a line, or with [NewTable], a table in MySQL,
// MariaDB or PostgreSQL: [Table.Read] reads it, [Table.Tail] catches up with it. A
// source streams: its memory does not grow with the number of IDs. [Progress] shows
// how far a long read is. What the IDs are for, and what it means that some could
// not be read, is the caller's affair.
package source
