package envoycheck

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	skipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Snapshot is the part of an Envoy's configuration that concerns ordergate.
type Snapshot struct {
	listeners []*listenerv3.Listener
	routes    map[string]*routev3.RouteConfiguration
	clusters  map[string]*clusterv3.Cluster
	endpoints map[string]*endpointv3.ClusterLoadAssignment
	runtime   *bootstrapv3.LayeredRuntime
	overload  *overloadv3.OverloadManager
	// whole means that it has Envoy's own settings, too, and not only listeners and the like.
	whole bool
	notes []string
	types map[string]bool // URLs of types that are not known here
}

const (
	// largest bounds what is read, in bytes. Of JSON, only one listener, table of routes or cluster is
	// in memory at a time; YAML is read as a whole.
	largest     = 1 << 30
	largestYAML = 16 << 20
)

// Read reads a bootstrap, a file of resources or a /config_dump, in JSON or YAML.
func Read(r io.Reader) (*Snapshot, error) {
	limited := &io.LimitedReader{R: r, N: largest}
	in := bufio.NewReaderSize(limited, 1<<16)
	first, err := firstByte(in)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{
		routes: map[string]*routev3.RouteConfiguration{}, clusters: map[string]*clusterv3.Cluster{},
		endpoints: map[string]*endpointv3.ClusterLoadAssignment{}, types: map[string]bool{},
	}
	switch first {
	case 0x1f:
		return nil, errors.New("it is gzipped: unpack it first")
	case '<':
		return nil, errors.New("it is a page and no configuration: does the address want a login?")
	case '{':
	default:
		if in, err = fromYAML(in); err != nil {
			return nil, err
		}
	}
	d := json.NewDecoder(in)
	if err := s.object(d, ""); err != nil {
		if limited.N <= 0 {
			return nil, fmt.Errorf("it has more than %d bytes", largest)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends too early: is it truncated?")
		}
		return nil, err
	}
	if err := s.ofOldAPI(); err != nil {
		return nil, err
	}
	if len(s.listeners) == 0 {
		return nil, errors.New("it has no listeners: is it a bootstrap or a /config_dump of Envoy?")
	}
	return s, nil
}

// firstByte returns the first byte that is no white space, and leaves it there.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, errors.New("it is empty")
		}
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(b)) {
			return b, in.UnreadByte()
		}
	}
}

func fromYAML(in *bufio.Reader) (*bufio.Reader, error) {
	text, err := io.ReadAll(io.LimitReader(in, largestYAML+1))
	if err != nil {
		return nil, err
	}
	if len(text) > largestYAML {
		return nil, fmt.Errorf("it is YAML of more than %d bytes: use JSON", largestYAML)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("it is neither JSON nor YAML with string keys: %s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("reading YAML: %w", err)
	}
	return bufio.NewReader(bytes.NewReader(data)), nil
}

// object reads an object at any depth. It decodes what concerns ordergate, one at a time. Within names
// the key of the object.
func (s *Snapshot) object(d *json.Decoder, within string) error {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(err, fmt.Errorf("it has no object at byte %d", d.InputOffset()))
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if err := s.member(d, snake(key), within); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (s *Snapshot) member(d *json.Decoder, key, within string) error {
	switch key {
	case "listener":
		return s.listener(d)
	case "route_config":
		return s.route(d)
	case "cluster":
		return s.cluster(d)
	case "endpoint_config":
		return s.endpoint(d)
	case "listeners":
		return elements(d, func() error { return s.listener(d) })
	case "clusters":
		return elements(d, func() error { return s.cluster(d) })
	case "resources":
		return elements(d, func() error { return s.resource(d) })
	case "layered_runtime":
		s.whole = true
		s.runtime = &bootstrapv3.LayeredRuntime{}
		return s.decode(d, s.runtime)
	case "overload_manager":
		s.overload = &overloadv3.OverloadManager{}
		return s.decode(d, s.overload)
	case "admin", "node":
		s.whole = s.whole || within != "configs"
		return skip(d)
	case "static_resources":
		if within == "bootstrap" {
			return skip(d) // the dump has all of them once more
		}
		s.whole = true
		return s.object(d, key)
	case "bootstrap":
		s.whole = true
		return s.object(d, key)
	case "@type":
		var url string
		if err := d.Decode(&url); err != nil {
			return fmt.Errorf("a type is no text at byte %d", d.InputOffset())
		}
		if strings.HasPrefix(url, "type.googleapis.com/envoy.admin.v2") {
			s.types[url] = true
		}
		return nil
	case "inline_scoped_route_configs", "dynamic_scoped_route_configs":
		s.note("routes that are chosen by scope are not checked")
		return skip(d)
	case "configs", "static_listeners", "dynamic_listeners", "static_route_configs", "dynamic_route_configs",
		"static_clusters", "dynamic_active_clusters", "static_endpoint_configs", "dynamic_endpoint_configs":
		return elements(d, func() error { return s.object(d, key) })
	case "active_state":
		return s.object(d, key)
	}
	return skip(d)
}

// elements calls read before each element of an array.
func elements(d *json.Decoder, read func() error) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != json.Delim('['):
		return fmt.Errorf("it has no list at byte %d", d.InputOffset())
	}
	for d.More() {
		if err := read(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// skip reads a value without keeping it.
func skip(d *json.Decoder) error {
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

func (s *Snapshot) listener(d *json.Decoder) error {
	m := &listenerv3.Listener{}
	err := s.decode(d, m)
	if err == nil {
		s.listeners = append(s.listeners, m)
	}
	return err
}

func (s *Snapshot) route(d *json.Decoder) error {
	m := &routev3.RouteConfiguration{}
	err := s.decode(d, m)
	s.routes[m.GetName()] = m
	return err
}

func (s *Snapshot) cluster(d *json.Decoder) error {
	m := &clusterv3.Cluster{}
	err := s.decode(d, m)
	s.clusters[m.GetName()] = m
	return err
}

func (s *Snapshot) endpoint(d *json.Decoder) error {
	m := &endpointv3.ClusterLoadAssignment{}
	err := s.decode(d, m)
	s.endpoints[m.GetClusterName()] = m
	return err
}

// resource reads an element of a file of xDS resources.
func (s *Snapshot) resource(d *json.Decoder) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return err
	}
	var typed struct {
		Type string `json:"@type"`
	}
	_ = json.Unmarshal(raw, &typed) // one that is no object has no type
	inner := json.NewDecoder(bytes.NewReader(raw))
	switch typed.Type {
	case "type.googleapis.com/envoy.config.listener.v3.Listener":
		return s.listener(inner)
	case "type.googleapis.com/envoy.config.route.v3.RouteConfiguration":
		return s.route(inner)
	case "type.googleapis.com/envoy.config.cluster.v3.Cluster":
		return s.cluster(inner)
	case "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment":
		return s.endpoint(inner)
	}
	s.types[typed.Type] = true
	return nil
}

// decode reads one message. It leaves out fields and types that it does not know.
func (s *Snapshot) decode(d *json.Decoder, m proto.Message) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return err
	}
	err := protojson.UnmarshalOptions{AllowPartial: true, DiscardUnknown: true, Resolver: resolver{protoregistry.GlobalTypes, s.types}}.Unmarshal(raw, m)
	if err != nil {
		if err := s.ofOldAPI(); err != nil {
			return err
		}
		text := strings.Join(strings.Fields(err.Error()), " ")
		return fmt.Errorf("a %s cannot be read: %s", m.ProtoReflect().Descriptor().Name(), text)
	}
	return nil
}

// resolver knows all types: unknown ones have no fields.
type resolver struct {
	*protoregistry.Types
	unknown map[string]bool
}

func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	t, err := r.Types.FindMessageByURL(url)
	if err != nil {
		r.unknown[url] = true
		return (&skipv3.SkipFilter{}).ProtoReflect().Type(), nil
	}
	return t, nil
}

// ofOldAPI returns an error if anything is of API v2: a type, or a connection manager without one.
func (s *Snapshot) ofOldAPI() error {
	var old []string
	for url := range s.types {
		name := url[strings.LastIndexByte(url, '/')+1:]
		if strings.HasPrefix(name, "envoy.api.v2") || strings.HasPrefix(name, "envoy.config.filter.") || strings.HasSuffix(name, ".v2") || strings.Contains(name, ".v2.") || strings.Contains(name, ".v2alpha.") {
			old = append(old, name)
		}
	}
	for _, l := range s.listeners {
		for _, g := range l.GetFilterChains() {
			for _, f := range g.GetFilters() {
				if f.GetTypedConfig() == nil && f.GetConfigDiscovery() == nil && strings.Contains(f.GetName(), "http_connection_manager") {
					old = append(old, f.GetName()+" has no typed_config")
				}
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	return fmt.Errorf("it is of Envoy's API v2 (%s), which no Envoy since 1.18 reads", slices.Min(old))
}

func (s *Snapshot) note(text string) {
	if !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// snake writes a name of JSON as a field's name.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
