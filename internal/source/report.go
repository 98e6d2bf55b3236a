package source

// maxListedBad bounds the bad lines or rows in a report.
const maxListedBad = 5

// Report is the result of a read.
type Report struct {
	IDs     int64 // passed to the caller
	Skipped int64 // lines or rows with content, but without a usable ID
	First   []Bad // the first few of those
	// Numbered means that the IDs are integers and the table is read in their order: see
	// [Mark.Number]. Only [Table.Tail] sets it.
	Numbered bool
}

// Bad is a line or a row without a usable order ID.
type Bad struct {
	Where  string // "line 7", "id = 7"
	Reason string
}

// String returns "line 7: not UTF-8".
func (b Bad) String() string { return b.Where + ": " + b.Reason }

// addBad counts a bad line or row. It calls where only for those in the report.
func (r *Report) addBad(where func() string, reason string) {
	r.Skipped++
	if len(r.First) < maxListedBad {
		r.First = append(r.First, Bad{Where: where(), Reason: reason})
	}
}

// truncate keeps log lines short.
func truncate(text []byte) []byte {
	const enough = 40
	return text[:min(len(text), enough)]
}
