package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// With -v=8 and above, clients of the API server log bodies, which may contain tokens of metrics users (TokenReview) and whole Secrets. A
// truncated body or a protobuf dump cannot be filtered, so no body is ever logged, whatever the verbosity.

// bodyMessages are the messages of client-go whose key bodyKey holds a body.
var bodyMessages = []string{"Request Body", "Response Body"}

const bodyKey = "body"

// withoutBody replaces the body of a log line by its length.
func withoutBody(message string, pairs []any) []any {
	if !slices.Contains(bodyMessages, message) {
		return pairs
	}
	pairs = slices.Clone(pairs)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == bodyKey {
			pairs[i+1] = fmt.Sprintf("not logged, %d bytes", len(fmt.Sprint(pairs[i+1])))
		}
	}
	return pairs
}

// updating starts the framework's log line about a load balancer's Nodes, of which it sees a single stand-in.
const updating = "Updating backends for load balancer %s/%s with "

// withoutStandIn corrects that line: "with all 4 nodes" instead of "with 1 nodes: [all 4 nodes]".
func withoutStandIn(format string, args []any) (string, []any) {
	if !strings.HasPrefix(format, updating) || len(args) < 3 {
		return format, args
	}
	if names, ok := args[len(args)-1].([]string); ok && len(names) == 1 && contract.StandsForAll(names[0]) {
		return updating + "%s", []any{args[0], args[1], names[0]}
	}
	return format, args
}

// logFilter removes bodies and stand-ins from lines logged by klog's functions.
type logFilter struct{}

// Filter implements klog.LogFilter.
func (logFilter) Filter(args []any) []any { return args }

// FilterF implements klog.LogFilter.
func (logFilter) FilterF(format string, args []any) (string, []any) {
	return withoutStandIn(format, args)
}

// FilterS implements klog.LogFilter.
func (logFilter) FilterS(message string, pairs []any) (string, []any) {
	return message, withoutBody(message, pairs)
}

// bodySink removes bodies from lines that bypass klog's functions.
type bodySink struct{ inner klog.LogSink }

// callDepth is implemented by sinks that log the caller's position.
type callDepth interface {
	WithCallDepth(depth int) klog.LogSink
}

func newBodySink(inner klog.LogSink) *bodySink {
	if deep, ok := inner.(callDepth); ok {
		inner = deep.WithCallDepth(1) // for our own frame
	}
	return &bodySink{inner: inner}
}

// Init implements klog.LogSink; the inner sink is already initialised.
func (*bodySink) Init(klog.RuntimeInfo) {}

// Enabled implements klog.LogSink.
func (s *bodySink) Enabled(level int) bool { return s.inner.Enabled(level) }

// Info implements klog.LogSink.
func (s *bodySink) Info(level int, message string, pairs ...any) {
	s.inner.Info(level, message, withoutBody(message, pairs)...)
}

// Error implements klog.LogSink.
func (s *bodySink) Error(err error, message string, pairs ...any) {
	s.inner.Error(err, message, withoutBody(message, pairs)...)
}

// WithValues implements klog.LogSink.
func (s *bodySink) WithValues(pairs ...any) klog.LogSink {
	return &bodySink{inner: s.inner.WithValues(pairs...)}
}

// WithName implements klog.LogSink.
func (s *bodySink) WithName(name string) klog.LogSink {
	return &bodySink{inner: s.inner.WithName(name)}
}

// WithCallDepth keeps positions correct in logging helpers.
func (s *bodySink) WithCallDepth(depth int) klog.LogSink {
	if deep, ok := s.inner.(callDepth); ok {
		return &bodySink{inner: deep.WithCallDepth(depth)}
	}
	return s
}

// logWithoutBodies wraps the framework's logger. It must run before any client of the API server handles secrets.
func logWithoutBodies() {
	if !utilfeature.DefaultFeatureGate.Enabled(logsapi.ContextualLogging) {
		return // everything passes klog's filter
	}
	sink := klog.Background().GetSink()
	if _, already := sink.(*bodySink); already || sink == nil {
		return
	}
	options := []klog.LoggerOption{klog.ContextualLogger(true)}
	if writer, ok := sink.(textlogger.KlogBufferWriter); ok {
		options = append(options, klog.WriteKlogBuffer(writer.WriteKlogBuffer))
	}
	klog.SetLoggerWithOptions(klog.New(newBodySink(sink)), options...)
}

// logUnbuffered disables log buffers, which our sink could not flush at exit.
func logUnbuffered(cmd *cobra.Command) {
	for _, name := range []string{"log-text-info-buffer-size", "log-json-info-buffer-size"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			_ = f.Value.Set("0") // a valid quantity
		}
	}
}
