package config

func (v *validator) source(path string, s Source) {
	if !v.required(path, "kind", s.Kind, "the kind of source, "+SourceCSV) {
		return
	}
	v.choice(path+".kind", s.Kind, SourceCSV)
	if s.Kind == SourceCSV {
		v.required(path, "path", s.Path, "the path of a file with one ID a line")
	}
}
