package snapshot

import "context"

// load opens a file as [Open] does, and reads all sections into new filters with the key.
func load(ctx context.Context, path string, want Identity, key [16]byte) (Header, []Section, error) {
	s, err := Open(path, want)
	if err != nil {
		return Header{}, nil, err
	}
	defer s.Close()
	var sections []Section
	for i := range s.Sections() {
		section, err := s.New(i, key)
		if err != nil {
			return Header{}, nil, err
		}
		if err := s.Read(ctx, i, section); err != nil {
			return Header{}, nil, err
		}
		sections = append(sections, section)
	}
	return s.Header(), sections, nil
}
