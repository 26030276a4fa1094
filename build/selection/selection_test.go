package selection

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	clouds := []string{"alpha", "beta", "gamma"}
	for name, tc := range map[string]struct {
		changed, clouds []string
		builds          bool
	}{
		"nothing":                        {nil, nil, false},
		"one cloud":                      {[]string{"providers/beta/model.go"}, []string{"beta"}, false},
		"its simulator and test data":    {[]string{"providers/beta/betasim/sim.go", "providers/beta/testdata/x"}, []string{"beta"}, false},
		"two clouds":                     {[]string{"providers/gamma/a.go", "providers/alpha/b.go"}, []string{"alpha", "gamma"}, false},
		"documentation":                  {[]string{"README.md", "docs/security.md", "docs/providers/alpha.md"}, nil, false},
		"a cloud and documentation":      {[]string{"docs/security.md", "providers/alpha/b.go"}, []string{"alpha"}, false},
		"the kit":                        {[]string{"providers/kit/nodes/nodes.go"}, nil, true},
		"the kit and a cloud":            {[]string{"providers/kit/nodes/nodes.go", "providers/alpha/b.go"}, []string{"alpha"}, true},
		"versions":                       {[]string{"go.sum"}, nil, true},
		"how tests are run":              {[]string{".ci/run"}, nil, true},
		"a file in the documentation":    {[]string{"docs/tool.go"}, nil, true},
		"a page elsewhere":               {[]string{"registry/notes.md"}, nil, true},
		"a cloud that was removed":       {[]string{"providers/gone/provider.go"}, nil, true},
		"a file outside of any cloud":    {[]string{"providers/doc.go"}, nil, true},
		"a cloud's name as a file":       {[]string{"providers/alpha"}, nil, true},
		"a folder that begins like one":  {[]string{"providers/alpha2/a.go"}, nil, true},
		"something that nobody knows of": {[]string{"x"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Decide(tc.changed, clouds)
			assert.Equal(t, tc.clouds, s.Clouds)
			assert.Equal(t, tc.builds, s.Builds)
			assert.NotEmpty(t, s.Why)
		})
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	assert.Empty(t, Selection{}.Lines())
	assert.Equal(t, []string{"test-cloud CLOUD=alpha", "test-cloud CLOUD=beta", "test-builds"}, Everything([]string{"alpha", "beta"}, "").Lines())
}
