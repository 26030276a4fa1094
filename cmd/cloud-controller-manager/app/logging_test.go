package app

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// TestNoBodyInTheLog: the real client logs no body, at any verbosity, in either encoding, by klog or past it.
func TestNoBodyInTheLog(t *testing.T) {
	const secret = "5up3r53cr3t-0f-wh0-asks-f0r-m3tr1cs"
	state := klog.CaptureState()
	defer state.Restore()
	for name, set := range map[string]func(*bytes.Buffer){
		"past klog": func(log *bytes.Buffer) {
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(log)))
			klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
			logWithoutBodies()
			logWithoutBodies() // repeated calls are harmless
		},
		"through klog": func(log *bytes.Buffer) {
			klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(log))))
			klog.SetLogFilter(logFilter{})
			require.NoError(t, new(klog.Level).Set("10"))
		},
	} {
		for _, encoding := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(name+" "+encoding, func(t *testing.T) {
				var log bytes.Buffer
				set(&log)
				client, err := kubernetes.NewForConfig(&rest.Config{
					Host: "http://api.invalid", ContentConfig: rest.ContentConfig{ContentType: encoding},
					Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: http.StatusOK, Header: r.Header, Body: r.Body, Request: r}, nil
					}),
				})
				require.NoError(t, err)
				review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: secret}}
				_, err = client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
				require.NoError(t, err)
				klog.Background().WithName("n").WithValues("a", "b").Info("here")
				klog.Flush()
				assert.Contains(t, log.String(), `"Request Body" body="not logged`)
				assert.Contains(t, log.String(), `"Response Body" body="not logged`)
				assert.Contains(t, log.String(), "logging_test.go", "a line tells where it comes from")
				for piece := range len(secret) - 8 {
					require.NotContains(t, log.String(), secret[piece:piece+8], "dumps break text into pieces")
				}
			})
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLogUnbuffered(t *testing.T) {
	m := newManager(t, provider("alpha", nil))
	require.NoError(t, check(t, m, "--log-text-info-buffer-size=4Ki"))
	logUnbuffered(m.cmd)
	assert.Equal(t, "0", strings.TrimSpace(m.cmd.Flags().Lookup("log-text-info-buffer-size").Value.String()))
}
