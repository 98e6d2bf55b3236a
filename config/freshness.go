package config

import (
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// DefaultWindow is the window of a filter without one in the file. It is much longer than a
// round trip to Redis, and much shorter than a create in a backend.
const DefaultWindow = 500 * time.Millisecond

// The bounds of a window. The filter reads the change log at least four times within a window.
// A window under the minimum would end between two reads.
const (
	minWindow = 100 * time.Millisecond
	maxWindow = 10 * time.Second
)

// freshnessType is the type of a struct that a file may also have as a single word.
var freshnessType = reflect.TypeFor[Freshness]()

// freshnessForms lists the valid forms for a message.
const freshnessForms = "{" + FreshnessWindow + ": 500ms}, " + FreshnessNone

// windowMapping is the form of [Freshness] as a mapping.
type windowMapping struct {
	Window time.Duration `mapstructure:"window"` // how long after a read of the change log a miss is absent, 100ms to 10s
}

// freshness reads a [Freshness]. The tree of values has it as one struct, so a variable
// replaces the file's value as a whole.
func (r *reader) freshness(n *yaml.Node, path string) (any, bool) {
	switch {
	case n.Kind == yaml.MappingNode:
		if d, ok := r.structure(n, reflect.TypeFor[windowMapping](), path)["window"].(time.Duration); ok {
			return Freshness{Mode: FreshnessWindow, Window: d}, true
		}
		r.rejectMissing(path, []string{"window"}, "is empty: write one of %s", freshnessForms)
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		f, problem := freshnessOf(n.Value)
		if problem == "" {
			return f, true
		}
		r.report(path, problem)
	default:
		return r.wrong(n, path, "one of "+freshnessForms)
	}
	return nil, r.discard(path)
}

// freshnessOf reads a text: a word, or "window: 1s". Variables need the second form, since
// they cannot contain mappings. It does not check the word; the validator does.
func freshnessOf(text string) (f Freshness, problem string) {
	text = strings.TrimSpace(text)
	if text == FreshnessWindow {
		return Freshness{Mode: FreshnessWindow, Window: DefaultWindow}, ""
	}
	inner := text
	if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
		inner = text[1 : len(text)-1]
	}
	key, value, isMapping := strings.Cut(inner, ":")
	key = strings.TrimSpace(key)
	if !isMapping || key != FreshnessWindow {
		return Freshness{Mode: text}, ""
	}
	d, problem := fromText(value, reflect.TypeFor[time.Duration]())
	if problem != "" {
		return Freshness{}, FreshnessWindow + ": " + problem
	}
	return Freshness{Mode: FreshnessWindow, Window: d.(time.Duration)}, ""
}

func (v *validator) freshness(path string, f Filter) {
	switch w := f.Freshness.Window; f.Freshness.Mode {
	case FreshnessWindow:
		v.window(path, f)
	case FreshnessNone:
		if w != 0 {
			v.reject(path, "has a time, which is for %s only: remove one of the two", FreshnessWindow)
		}
	default:
		v.reject(path, "%s is not one of %s", quote(f.Freshness.Mode), freshnessForms)
	}
}

// window checks a window, and compares it with stale_after and change_log.expel. It skips a
// comparison with a value below its minimum, since another check reports that value.
func (v *validator) window(path string, f Filter) {
	w, at := f.Freshness.Window, path+".window"
	between(v, at, w, minWindow, maxWindow)
	if w < minWindow || w > maxWindow {
		return
	}
	if stale := f.StaleAfter; stale >= time.Second && w > stale {
		v.reject(at, "%s is longer than stale_after (%s), after which nothing is absent: write a shorter window, or a longer stale_after", number(w), number(stale))
	}
	if expel := f.ChangeLog.Expel; expel >= minExpel && w+w/10 > expel {
		v.reject(at, "%s and a tenth are longer than change_log.expel (%s): an ordergate could be expelled while earlier windows are open; write a shorter window, or a longer expel",
			number(w), number(expel))
	}
}
