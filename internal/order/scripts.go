package order

import (
	"slices"
	"strings"
)

// indexScript is the script that PHP runs for a folder.
const indexScript = "/index.php"

// mount is a front controller in a folder that begins the paths of rules. Its script finds the rest
// of a path behind itself or in a parameter.
type mount struct {
	script string // its path, in lower case
	folder string // that of the script
	rules  tree   // by their paths without the folder
}

// addRouted adds a guarding rule to the trees by which a script finds it. Web servers cut the suffix
// of a path, such as .html, when they rewrite it.
func (t *Table) addRouted(segments []segment, rule int) {
	forms := [][]segment{segments}
	last := len(segments) - 1
	if i := strings.LastIndexByte(segments[last].text, '.'); i > 0 && !segments[last].isVar {
		form := append(slices.Clone(segments[:last]), segment{text: segments[last].text[:i]})
		if lower(segments[last].text[i:]) == scriptEnd {
			t.views.add(form, rule)
			t.plainNear = true
		} else {
			forms = append(forms, form)
		}
	}
	for _, form := range forms[1:] { // addNear adds the first
		t.routed.add(form, rule)
	}
	folder := ""
	for i := range last {
		if segments[i].isVar || segments[i+1].isVar {
			return // of a list /orders/?page=2, no value is the order of /orders/{id}
		}
		folder += "/" + lower(segments[i].text)
		for _, m := range t.mountsIn(folder, t.rules[rule].FrontControllers) {
			for _, form := range forms {
				m.rules.add(form[i+1:], rule)
			}
		}
	}
}

// mountsIn returns the front controllers in a folder. Without a list of them, a folder has an
// index.php.
func (t *Table) mountsIn(folder string, scripts []string) (all []*mount) {
	if scripts == nil {
		scripts = []string{folder + indexScript}
	}
	for _, script := range scripts {
		script = lower(script)
		if script[:strings.LastIndexByte(script, '/')] != folder {
			continue
		}
		i := slices.IndexFunc(t.mounts, func(m *mount) bool { return m.script == script })
		if i < 0 {
			i = len(t.mounts)
			t.mounts = append(t.mounts, &mount{script: script, folder: folder, rules: tree{spell: t.near.spell}})
		}
		all = append(all, t.mounts[i])
	}
	return all
}

// mountOf returns the mount that some backend may run for a path, or none.
func (t *Table) mountOf(path string) (found []*mount) {
	if len(t.mounts) == 0 || t.isPlain(path) {
		return nil
	}
	t.readings(path, nil, func(reading string, _ *tree) bool {
		reading = lower(reading)
		for i, m := range t.mounts {
			rest, ok := strings.CutPrefix(reading, m.script)
			if ok && (rest == "" || rest[0] == '/') || reading == m.folder && strings.HasSuffix(m.script, indexScript) {
				found = t.mounts[i : i+1]
				return true
			}
		}
		return false
	})
	return found
}

// mountsAbove returns the mounts whose folder begins the path of a rule.
func (t *Table) mountsAbove(path string) (all []*mount) {
	for _, m := range t.mounts {
		if strings.HasPrefix(lower(path), m.folder+"/") {
			all = append(all, m)
		}
	}
	return all
}

// matchText checks a text from which a script may take the path. A web server may put it into a
// parameter, with or without the folder of the script.
func (t *Table) matchText(req *Request, text string, mounts []*mount) Match {
	path := "/./" + text // the dot forces a lenient match
	m := t.matchReadings(req, path, &t.routed)
	for i := 0; i < len(mounts) && m.Result == Unruled; i++ {
		m = t.matchReadings(req, path, &mounts[i].rules)
	}
	return m
}

// withViews adds scripts by the paths without .php.
func withViews(scripts []string) []string {
	for _, script := range slices.Clip(scripts) {
		if view, ok := strings.CutSuffix(script, scriptEnd); ok {
			scripts = append(scripts, view)
		}
	}
	return scripts
}

// viewed calls try with the scripts that Apache runs for a path by MultiViews, until try returns true:
// each on the path without .php, which gets the rest as PATH_INFO. A path with another suffix is none.
func (t *Table) viewed(path string, try reader) bool {
	for i, segments := 1, 1; i <= len(path) && segments <= t.depth; i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if try(path[:i], &t.views) {
			return true
		}
		segments++
	}
	return false
}

// scriptEnd ends the name of a script of PHP.
const scriptEnd = ".php"

// scripts calls try with each script that PHP may run for a path, until try returns true.
// These are each script on the path, which gets the rest as PATH_INFO, and the index of a
// folder, by either of its paths.
func (t *Table) scripts(path string, in *tree, try reader) bool {
	for i, segments := 1, 1; i < len(path) && segments <= t.depth; i++ { // no rule's path has more
		if path[i] != '/' {
			continue
		}
		if strings.HasSuffix(path[:i], scriptEnd) && try(path[:i], in) {
			return true
		}
		segments++
	}
	if folder, ok := strings.CutSuffix(path, indexScript); ok {
		return try(folder+"/", in) || folder != "" && try(folder, in)
	}
	// The tree has the folder of each rule's script, but not of one that a {name} stands for.
	return t.namesScript && !strings.HasSuffix(path, scriptEnd) && try(strings.TrimSuffix(path, "/")+indexScript, in)
}

// withoutScripts calls try with a path as a script on it finds it, which is without the script's own
// path, and with or without its folder: /shop/index.php/orders is /orders or /shop/orders.
func (t *Table) withoutScripts(path string, try reader) bool {
	for n, at := 0, 0; n <= t.depth; n++ {
		i := strings.Index(path[at:], scriptEnd+"/")
		if i < 0 {
			return false
		}
		at += i + len(scriptEnd)
		folder, rest := path[:strings.LastIndexByte(path[:at], '/')], path[at:]
		if t.tails(rest, &t.routed, try) || folder != "" && t.tails(folder+rest, &t.routed, try) {
			return true
		}
	}
	return false
}

// isController reports whether some backend may read a path as one of some front controllers,
// with or without a path after it.
func (t *Table) isController(path string, controllers []string) bool {
	is := func(reading string) bool {
		reading = lower(reading)
		for _, c := range controllers {
			rest, ok := strings.CutPrefix(reading, c)
			if ok && (rest == "" || rest[0] == '/' && c != "/") {
				return true
			}
			if folder, ok := strings.CutSuffix(c, indexScript); ok && reading != "" && strings.TrimSuffix(reading, "/") == folder {
				return true
			}
		}
		return false
	}
	return is(path) || len(controllers) > 0 && !t.isPlain(path) && t.readings(path, nil, func(reading string, _ *tree) bool { return is(reading) })
}
