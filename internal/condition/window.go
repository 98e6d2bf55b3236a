package condition

import "time"

// Window is a part of some days of the week, by the wall clock of a zone. On a day that has an
// hour twice or not at all, it begins and ends when that clock shows its times.
type Window struct {
	From, To int // minutes from midnight, 0 to 1440. To below From is on the next day
	Days     [7]bool
	Zone     *time.Location
}

// Contains reports whether a time is within the window. From is, and To is not.
func (w Window) Contains(t time.Time) bool {
	t = t.In(w.Zone)
	day, minute := t.Weekday(), 60*t.Hour()+t.Minute()
	switch {
	case w.From <= w.To:
		return w.Days[day] && w.From <= minute && minute < w.To
	case minute >= w.From:
		return w.Days[day]
	}
	yesterday := (day + 6) % 7
	return w.Days[yesterday] && minute < w.To
}
