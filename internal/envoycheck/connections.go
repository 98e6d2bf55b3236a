package envoycheck

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	upstreamsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

const (
	mostStreams = 1024
	mostWindow  = 1 << 20
	mostBuffer  = 4 << 20
)

// connections checks what a connection manager lets clients do.
func (c *check) connections(ch *chain) {
	where, h := ch.name(), ch.hcm
	if !h.GetNormalizePath().GetValue() || !h.GetMergeSlashes() {
		c.find(where, "normalize_path or merge_slashes is not true", "one path has many spellings, and the backend may accept more of them than the gate", "normalize_path: true and merge_slashes: true")
	}
	switch h.GetPathWithEscapedSlashesAction() {
	case hcmv3.HttpConnectionManager_REJECT_REQUEST, hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT, hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD:
	default:
		c.find(where, "path_with_escaped_slashes_action keeps %2F", "one path has many spellings, and the backend may accept more of them than the gate", "path_with_escaped_slashes_action: REJECT_REQUEST")
	}
	common := h.GetCommonHttpProtocolOptions()
	if common.GetHeadersWithUnderscoresAction() == corev3.HttpProtocolOptions_ALLOW {
		c.find(where, "headers_with_underscores_action allows them", "PHP takes X_Order_Id for X-Order-Id: two orders in one request", "common_http_protocol_options: { headers_with_underscores_action: REJECT_REQUEST }")
	}
	if !h.GetUseRemoteAddress().GetValue() && len(h.GetOriginalIpDetectionExtensions()) == 0 {
		c.find(where, "use_remote_address is not true", "a client chooses its address by X-Forwarded-For, and so escapes the limits of each client", "use_remote_address: true")
	}
	if !onlyNarrow(h.GetInternalAddressConfig()) {
		c.find(where, "internal_address_config lets clients be internal", "a client that is taken for internal sends x-envoy-retry-on: 5xx, and its settlement arrives four times", "internal_address_config: { cidr_ranges: [{ address_prefix: 255.255.255.255, prefix_len: 32 }] }")
	}
	if c.calls {
		c.times(ch)
		c.early(ch)
	}
	c.sizes(ch)
	for _, name := range []string{"x-ordergate-key", "x-ordergate-fence", "x-ordergate-verdict", "x-ordergate-settled-at", "x-ordergate-lease-lost", "x.ordergate.fence"} {
		if !removes(h, name) {
			c.find(where, "early_header_mutation_extensions does not remove "+name, "while ordergate is away, a client may say what only ordergate may say", "the mutations of ordergate envoy")
			break
		}
	}
}

// onlyNarrow reports whether internal addresses are such that no client has by accident: single ones,
// and none of loopback.
func onlyNarrow(a *hcmv3.HttpConnectionManager_InternalAddressConfig) bool {
	if len(a.GetCidrRanges()) == 0 {
		return false // Envoy's own choice: private networks, or all
	}
	for _, r := range a.GetCidrRanges() {
		ip, err := netip.ParseAddr(r.GetAddressPrefix())
		if err != nil || ip.IsLoopback() || int(r.GetPrefixLen().GetValue()) < ip.BitLen() {
			return false
		}
	}
	return true
}

// early checks that HTTP/3 takes no early data, which it does by default.
func (c *check) early(ch *chain) {
	socket := &quicv3.QuicDownstreamTransport{}
	if ch.quic && (!unpack(ch.socket.GetTypedConfig(), socket) || socket.GetEnableEarlyData() == nil || socket.GetEnableEarlyData().GetValue()) {
		c.find(ch.name(), "enable_early_data is not false", "others may send a settlement once more that a client has sent in early data (0-RTT, RFC 8470)", "enable_early_data: false in the transport socket envoy.transport_sockets.quic")
	}
}

func (c *check) times(ch *chain) {
	where, h := ch.name(), ch.hcm
	request := h.GetRequestTimeout().AsDuration()
	switch t := c.plan.Times; {
	case request == 0:
		c.find(where, "request_timeout is missing", "a byte every 20 seconds keeps a stream for ever", "request_timeout: "+seconds(t.Request))
	case request <= c.leastMessage():
		c.find(where, fmt.Sprintf("request_timeout is %v, and requests of the rules may wait for %v", request, c.leastMessage()), "a client that waits for a lock gets 408", "request_timeout: "+seconds(t.Request))
	case t.MaxHold > 0 && request >= t.MaxHold:
		c.find(where, fmt.Sprintf("request_timeout is %v, and settle.max_hold %v", request, t.MaxHold), "ordergate ends the call of a slow client itself, and holds its lock", "request_timeout: "+seconds(t.Request))
	}
	if h.GetRequestHeadersTimeout().AsDuration() == 0 {
		c.find(where, "request_headers_timeout is missing", "a client that sends headers a byte at a time keeps a connection for ever", "request_headers_timeout: "+seconds(c.plan.Times.Headers))
	}
}

func (c *check) sizes(ch *chain) {
	where, h := ch.name(), ch.hcm
	if n := ch.listener.GetPerConnectionBufferLimitBytes(); n == nil || n.GetValue() > mostBuffer {
		c.find(where, "per_connection_buffer_limit_bytes is missing, or more than 4 MiB", "memory without a bound", "per_connection_buffer_limit_bytes: 262144")
	} else if int(n.GetValue()) < c.plan.MaxBody {
		c.find(where, fmt.Sprintf("per_connection_buffer_limit_bytes is less than the longest body that a rule reads (%d)", c.plan.MaxBody), "such requests get 413", fmt.Sprintf("per_connection_buffer_limit_bytes: %d", c.plan.MaxBody))
	}
	if h.GetCodecType() == hcmv3.HttpConnectionManager_HTTP1 {
		return
	}
	if ch.quic {
		q := ch.listener.GetUdpListenerConfig().GetQuicOptions().GetQuicProtocolOptions()
		c.streams(where, "quic_protocol_options", q.GetMaxConcurrentStreams().GetValue(), q.GetInitialStreamWindowSize().GetValue(), q.GetInitialConnectionWindowSize().GetValue())
		return
	}
	o := h.GetHttp2ProtocolOptions()
	c.streams(where, "http2_protocol_options", o.GetMaxConcurrentStreams().GetValue(), o.GetInitialStreamWindowSize().GetValue(), o.GetInitialConnectionWindowSize().GetValue())
}

func (c *check) streams(where, options string, streams, window, connection uint32) {
	if streams == 0 || streams > mostStreams {
		c.find(where, options+".max_concurrent_streams is missing, or more than 1024", "two connections of HTTP/2 held 1,300 requests", options+": { max_concurrent_streams: 100 }")
	}
	if window == 0 || window > mostWindow || connection == 0 || connection > 16*mostWindow {
		c.find(where, options+" has no initial_stream_window_size of up to 1 MiB and initial_connection_window_size of up to 16 MiB", "memory without a bound", options+": { initial_stream_window_size: 262144, initial_connection_window_size: 1048576 }")
	}
}

// removes reports whether a client's header is removed before all filters.
func removes(h *hcmv3.HttpConnectionManager, name string) bool {
	for _, e := range h.GetEarlyHeaderMutationExtensions() {
		m := &mutationv3.HeaderMutation{}
		if !unpack(e.GetTypedConfig(), m) {
			continue
		}
		for _, one := range m.GetMutations() {
			if one.GetRemove() == name {
				return true
			}
			if k := one.GetRemoveOnMatch().GetKeyMatcher(); k != nil && matchesString(k, name) == yes {
				return true
			}
		}
	}
	return false
}

var rawPath = lazyregexp.New(`%(?:REQ(?:_WITHOUT_QUERY)?\((?:[^)]*[?])?(?:(?i::path|x-envoy-original-path|x-original-path|referer|user-agent))[^)]*\)|PATH(?:\([^)]*\))?)(?::\d+)?%`)

// logs checks how requests are logged.
func (c *check) logs(ch *chain) {
	where := ch.name()
	const consequence = "a client forges lines of the log, or has a terminal obey its path (U+009B over HTTP/2)"
	const write = `log_format: { json_format: { path: "%CEL(request.path.matches('^[!-~]*$') ? request.path : 'not in ASCII')%" } }, and the others of ordergate envoy`
	if len(ch.hcm.GetAccessLog()) == 0 {
		c.find(where, "there is no access log", "what Envoy itself refuses or ends is nowhere to be seen", write)
	}
	for _, a := range ch.hcm.GetAccessLog() {
		var format *corev3.SubstitutionFormatString
		out, stderr, file := &streamv3.StdoutAccessLog{}, &streamv3.StderrAccessLog{}, &filev3.FileAccessLog{}
		switch {
		case unpack(a.GetTypedConfig(), out):
			format = out.GetLogFormat()
		case unpack(a.GetTypedConfig(), stderr):
			format = stderr.GetLogFormat()
		case unpack(a.GetTypedConfig(), file):
			if format = file.GetLogFormat(); file.GetJsonFormat() != nil { //nolint:staticcheck // old configurations have it
				format = &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: file.GetJsonFormat()}} //nolint:staticcheck // as above
			}
		default:
			continue // it goes to a service, which decides what it writes
		}
		if format.GetJsonFormat() == nil {
			c.find(where, "an access log is not JSON", consequence, write)
			continue
		}
		for name, v := range format.GetJsonFormat().GetFields() {
			if rawPath.MatchString(v.GetStringValue()) {
				c.find(where, "the access log has "+v.GetStringValue()+" in "+name+" as the client sent it", consequence, write)
			}
		}
	}
}

// process checks the settings of Envoy itself.
func (c *check) process() {
	perCycle := ""
	for _, l := range c.runtime.GetLayers() {
		if v, ok := l.GetStaticLayer().GetFields()["http.max_requests_per_io_cycle"]; ok {
			perCycle = strings.Trim(v.String(), `"`)
			if v.GetNumberValue() == 1 || v.GetStringValue() == "1" {
				perCycle = "1"
			}
		} else if v, ok := l.GetStaticLayer().GetFields()["http"]; ok && v.GetStructValue().GetFields()["max_requests_per_io_cycle"].GetNumberValue() == 1 {
			perCycle = "1"
		}
	}
	if perCycle != "1" {
		c.find("layered_runtime", "http.max_requests_per_io_cycle is not 1", "two clients of HTTP/2 that open requests and reset them at once keep others waiting for 2 s", "static_layer: { http.max_requests_per_io_cycle: 1 }")
	}
	monitors := ""
	for _, m := range c.overload.GetResourceMonitors() {
		monitors += m.GetName() + m.GetTypedConfig().GetTypeUrl() + " "
	}
	if !strings.Contains(monitors, "downstream_connections") && !strings.Contains(monitors, "global_downstream_max_connections") {
		c.find("overload_manager", "no resource monitor bounds the connections of clients", "memory and open files without a bound", "the monitor envoy.resource_monitors.global_downstream_max_connections of ordergate envoy")
	}
	if !strings.Contains(monitors, "fixed_heap") && !strings.Contains(monitors, "cgroup_memory") {
		c.find("overload_manager", "no resource monitor bounds the memory", "memory without a bound", "the monitor envoy.resource_monitors.fixed_heap, and the actions of ordergate envoy")
	} else if len(c.overload.GetActions()) == 0 {
		c.find("overload_manager", "it has no actions", "memory without a bound", "the actions of ordergate envoy")
	}
}

// speaksHTTP2 reports whether Envoy speaks HTTP/2 to a cluster.
func speaksHTTP2(cluster *clusterv3.Cluster) bool {
	if proto.Size(cluster.GetHttp2ProtocolOptions()) > 0 || cluster.GetHttp2ProtocolOptions() != nil { //nolint:staticcheck // old configurations have it
		return true
	}
	o := &upstreamsv3.HttpProtocolOptions{}
	a := cluster.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
	return a != nil && unpack(a, o) && (o.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil || o.GetAutoConfig() != nil || o.GetUseDownstreamProtocolConfig() != nil)
}

// envoysRouteTimeout is that of a route without one.
const envoysRouteTimeout = 15 * time.Second
