package pins

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cutsNoNames are clouds in which no name is cut, joined or given a suffix, with the reason.
var cutsNoNames = map[string]string{
	"digitalocean": "a load balancer has the name that a Service asks for, or its UID",
	"keepalived":   "nothing is made that has a name",
	"ovirt":        "there are no load balancers",
	"photon":       "there are no load balancers",
}

// TestEachCloud: each cloud registers itself with the framework, and has a test for names at the limits.
func TestEachCloud(t *testing.T) {
	t.Parallel()
	start, ugly := regexp.MustCompile(`(?s)\nfunc init\(\) \{.*?\n\}`), regexp.MustCompile(`\nfunc TestUglyNames\(`)
	clouds, err := filepath.Glob(filepath.Join(root, "providers/*/provider.go"))
	require.NoError(t, err)
	require.Greater(t, len(clouds), 12)
	all := files(t)
	for _, file := range clouds {
		cloud := filepath.Base(filepath.Dir(file))
		begins := start.FindString(read(t, "providers/"+cloud+"/provider.go"))
		assert.Contains(t, begins, "cloudprovider.RegisterCloudProvider(Name, ", cloud)
		assert.Contains(t, begins, "registry.Register(Description())", cloud)
		held := false
		for _, test := range all {
			ours := strings.HasPrefix(test, "providers/"+cloud+"/") && strings.HasSuffix(test, "_test.go")
			held = held || ours && ugly.MatchString(read(t, test))
		}
		assert.NotEqual(t, held, cutsNoNames[cloud] != "", "%s: TestUglyNames compares its names, or there is a reason why none is cut", cloud)
	}
}
