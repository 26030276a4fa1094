package linode

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// loggedSecret is the variable that hands the Secret to the process whose log is read.
const loggedSecret = "ANYCCM_LOGGED_SECRET"

// TestNoSecretIsLogged at the highest verbosity, with the SDK's own debugging asked for, by a process of its own: what it writes is
// the log, whoever writes it.
func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	if given := os.Getenv(loggedSecret); given != "" {
		logWithSecret(t, given)
		return
	}
	tls := newSecret(t, "web-tls", 1)
	given, err := json.Marshal(tls)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoSecretIsLogged$")
	cmd.Env = append(os.Environ(), loggedSecret+"="+string(given), "LINODE_DEBUG=true")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Run(), log.String())
	logged := log.String()
	assert.Contains(t, logged, "NodeBalancer ccm-3c1f6b527a66", "it is listened to")
	key := string(tls.Data[v1.TLSPrivateKeyKey])
	for line := range strings.SplitSeq(strings.TrimSpace(key), "\n") {
		if !strings.HasPrefix(line, "-----") {
			assert.NotContains(t, logged, line)
		}
	}
	assert.NotContains(t, logged, "PRIVATE KEY")
	assert.NotContains(t, logged, testToken)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		hidden := privateKey(key)
		assert.NotContains(t, fmt.Sprintf(verb, configFields{Key: hidden}), "PRIVATE KEY")
		assert.NotContains(t, fmt.Sprintf(verb, secret{Key: hidden}), "PRIVATE KEY")
	}
}

// logWithSecret has a Service with a certificate made and changed, and logs all of it.
func logWithSecret(t *testing.T, given string) {
	t.Helper()
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	require.NoError(t, flags.Parse([]string{"-v=10", "-logtostderr=true"}))
	tls := &v1.Secret{}
	require.NoError(t, json.Unmarshal([]byte(given), tls))
	w := newTestWorld(t, map[string]string{"linodego-debug": "true"}, nil)
	w.addNode(linodesim.Spec{Label: "worker", Private: true})
	_, err := w.Kube.CoreV1().Secrets("default").Create(t.Context(), tls, metav1.CreateOptions{})
	require.NoError(t, err)
	s := service("web", map[string]string{annotationPort + "443": `{"protocol": "https", "tls-secret-name": "web-tls"}`}, port("https", 443, 30443))
	w.Apply(s)
	s, _ = w.ensure(s)
	s.Annotations[annotationPort+"443"] = `{"protocol": "https", "tls-secret-name": "web-tls", "algorithm": "leastconn"}`
	w.Apply(s)
	w.ensure(s)
	klog.Flush()
}
