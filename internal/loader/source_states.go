package loader

import "time"

// SourceState is what a source has given to its filter.
type SourceState struct {
	Name     string
	Table    bool          // a table
	Topic    bool          // a topic; neither: a file
	Followed bool          // this process follows the table, or reads the topic
	Lag      time.Duration // since this process had all committed rows; of a followed table
	LastRow  string        // the cursor from which the table is read on; "": its first row, or a file
	LastRead time.Time     // when the last complete reading ended; zero: there was none, or it began again after a doubt
}

// SourceStates returns the states of the filter's sources, topics last. It does not block.
func (l *Loader) SourceStates() []SourceState {
	states := make([]SourceState, len(l.sources))
	for i, s := range l.sources {
		switch s := s.(type) {
		case *csvSource:
			states[i].Name = s.name
		case *tableSource:
			states[i] = SourceState{Name: s.name, Table: true, LastRow: s.reached().Mark.Floor.Cursor, LastRead: s.covered().ended}
		}
		for _, f := range l.followers {
			if f.name == states[i].Name {
				states[i].Lag, states[i].Followed = f.state.lag()
			}
		}
	}
	for _, f := range l.feeds {
		s := SourceState{Name: f.name, Topic: true}
		s.Lag, s.Followed = f.state.lag()
		states = append(states, s)
	}
	return states
}
