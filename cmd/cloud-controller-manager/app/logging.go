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

// From -v=8 on, clients of the API server log what they send and receive: the token of whoever asks for metrics (a
// TokenReview), and whole Secrets. Which body holds what cannot be told once it is cut, or a dump of protobuf; so no body
// is ever logged, whatever the verbosity is and whoever changes it while the program runs.

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

// updating begins the line by which the framework says which Nodes a load balancer gets. It sees one stand-in for all of them.
const updating = "Updating backends for load balancer %s/%s with "

// withoutStandIn makes that line tell the truth: "with all 4 nodes" instead of "with 1 nodes: [all 4 nodes]".
func withoutStandIn(format string, args []any) (string, []any) {
	if !strings.HasPrefix(format, updating) || len(args) < 3 {
		return format, args
	}
	if names, ok := args[len(args)-1].([]string); ok && len(names) == 1 && contract.StandsForAll(names[0]) {
		return updating + "%s", []any{args[0], args[1], names[0]}
	}
	return format, args
}

// logFilter takes bodies and stand-ins out of what goes through klog itself.
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

// bodySink takes bodies out of what goes to the logger itself, past klog.
type bodySink struct{ inner klog.LogSink }

// callDepth is implemented by sinks that tell where a line comes from.
type callDepth interface {
	WithCallDepth(depth int) klog.LogSink
}

func newBodySink(inner klog.LogSink) *bodySink {
	if deep, ok := inner.(callDepth); ok {
		inner = deep.WithCallDepth(1) // ours stands between
	}
	return &bodySink{inner: inner}
}

// Init implements klog.LogSink; the inner one has been initialised.
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

// WithCallDepth keeps the places of log lines right where helpers log.
func (s *bodySink) WithCallDepth(depth int) klog.LogSink {
	if deep, ok := s.inner.(callDepth); ok {
		return &bodySink{inner: deep.WithCallDepth(depth)}
	}
	return s
}

// logWithoutBodies puts the sink above the logger that the framework has set up. It is called before any client of the API
// server asks for something secret.
func logWithoutBodies() {
	if !utilfeature.DefaultFeatureGate.Enabled(logsapi.ContextualLogging) {
		return // everything goes through klog, and its filter
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

// logUnbuffered switches off the buffers for log lines, which the sink above the logger could not flush at the end.
func logUnbuffered(cmd *cobra.Command) {
	for _, name := range []string{"log-text-info-buffer-size", "log-json-info-buffer-size"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			_ = f.Value.Set("0") // a quantity that is legal
		}
	}
}
