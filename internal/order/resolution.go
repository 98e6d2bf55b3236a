package order

import "time"

const day = 24 * time.Hour

// DependsOnZone reports whether the time in an ID is that of a time zone, which the ID does not
// name.
func (f *Format) DependsOnZone() bool {
	f = f.OfID()
	return f.Kind == Timestamped && f.Layout != EpochMillis && f.Layout != EpochSeconds
}

// Resolution returns how long after the time in its ID an order may have been created. It
// returns false if the format's IDs contain no time, or a time without a year.
func (f *Format) Resolution() (step time.Duration, ok bool) {
	f = f.OfID()
	switch {
	case f.Kind == Snowflake || f.Kind == Timestamped && f.Layout == EpochMillis:
		return time.Millisecond, true
	case f.Kind == Timestamped && f.Layout == EpochSeconds:
		return time.Second, true
	case f.Kind != Timestamped:
		return 0, false
	}
	at := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	has := func(later time.Time) bool { return later.Format(f.Layout) != at.Format(f.Layout) }
	switch {
	case !has(at.AddDate(1, 0, 0)):
		return 0, false
	case !has(at.AddDate(0, 1, 0)):
		return 366 * day, true
	case !has(at.AddDate(0, 0, 1)):
		return 31 * day, true
	case !has(at.Add(time.Hour)) || !has(at.Add(12*time.Hour)): // no hour, or a 12-hour clock
		return day, true
	case !has(at.Add(time.Minute)):
		return time.Hour, true
	case !has(at.Add(time.Second)):
		return time.Minute, true
	}
	return time.Second, true
}
