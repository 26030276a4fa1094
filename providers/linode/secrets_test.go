package linode

import (
	"flag"
	"fmt"
	"log" //nolint:depguard // the SDK writes to it
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// TestNoSecretIsLogged at the highest verbosity, with the SDK's own debugging asked for. It is not parallel, because what it
// listens to is the process's.
func TestNoSecretIsLogged(t *testing.T) {
	t.Setenv("LINODE_DEBUG", "true")
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	require.NoError(t, err)
	stderr, state := os.Stderr, klog.CaptureState()
	defer func() {
		state.Restore()
		os.Stderr = stderr
		log.SetOutput(stderr)
	}()
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	require.NoError(t, flags.Parse([]string{"-v=10", "-logtostderr=false", "-alsologtostderr=false"}))
	os.Stderr = file
	log.SetOutput(file)
	klog.SetOutput(file)

	w := newTestWorld(t, map[string]string{"linodego-debug": "true"}, nil)
	w.addNode(linodesim.Spec{Label: "worker", Private: true})
	tls := newSecret(t, "web-tls", 1)
	_, err = w.Kube.CoreV1().Secrets("default").Create(t.Context(), tls, metav1.CreateOptions{})
	require.NoError(t, err)
	s := service("web", map[string]string{annotationPort + "443": `{"protocol": "https", "tls-secret-name": "web-tls"}`}, port("https", 443, 30443))
	w.Apply(s)
	s, _ = w.ensure(s)
	s.Annotations[annotationPort+"443"] = `{"protocol": "https", "tls-secret-name": "web-tls", "algorithm": "leastconn"}`
	w.Apply(s)
	w.ensure(s)
	klog.Flush()
	logged, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(logged), "NodeBalancer ccm-3c1f6b527a66", "it is listened to")
	key := string(tls.Data[v1.TLSPrivateKeyKey])
	for line := range strings.SplitSeq(strings.TrimSpace(key), "\n") {
		if !strings.HasPrefix(line, "-----") {
			assert.NotContains(t, string(logged), line)
		}
	}
	assert.NotContains(t, string(logged), "PRIVATE KEY")
	assert.NotContains(t, string(logged), testToken)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		hidden := privateKey(key)
		assert.NotContains(t, fmt.Sprintf(verb, configFields{Key: hidden}), "PRIVATE KEY")
		assert.NotContains(t, fmt.Sprintf(verb, secret{Key: hidden}), "PRIVATE KEY")
	}
}
