package app

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/testutil"
)

func TestBuildInfo(t *testing.T) {
	t.Parallel()
	m := newManager(t, provider("alpha", nil), provider("beta", nil))
	recordBuild(m.providers, "beta")
	told, err := testutil.GetGaugeMetricValue(buildInfo.WithLabelValues(version, commit, runtime.Version(), "alpha,beta", "beta"))
	require.NoError(t, err)
	assert.InDelta(t, 1, told, 0)
}

func TestKubernetesVersion(t *testing.T) {
	t.Parallel()
	for library, want := range map[string][3]string{
		"v0.37.2": {"v1.37.2", "1", "37"}, "v0.38.0-alpha.1": {"v1.38.0-alpha.1", "1", "38"}, "": {"unknown", "", ""}, "(devel)": {"unknown", "", ""},
	} {
		version, major, minor := kubernetesVersion(library)
		assert.Equal(t, want, [3]string{version, major, minor}, library)
	}
}
