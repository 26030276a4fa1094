package selection

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	clouds := []string{"alpha", "beta", "gamma"}
	for name, tc := range map[string]struct {
		changed, run, race []string
	}{
		"nothing: this is the base":      {nil, clouds, clouds},
		"one cloud":                      {[]string{"providers/beta/model.go"}, []string{"beta"}, []string{"beta"}},
		"its simulator and test data":    {[]string{"providers/beta/betasim/sim.go", "providers/beta/testdata/x"}, []string{"beta"}, []string{"beta"}},
		"two clouds":                     {[]string{"providers/gamma/a.go", "providers/alpha/b.go"}, []string{"alpha", "gamma"}, []string{"alpha", "gamma"}},
		"documentation":                  {[]string{"README.md", "docs/security.md", "docs/providers/alpha.md"}, nil, nil},
		"a cloud and documentation":      {[]string{"docs/security.md", "providers/alpha/b.go"}, []string{"alpha"}, []string{"alpha"}},
		"the kit":                        {[]string{"providers/kit/nodes/nodes.go"}, clouds, nil},
		"the kit and a cloud":            {[]string{"providers/kit/nodes/nodes.go", "providers/alpha/b.go"}, clouds, []string{"alpha"}},
		"the registry":                   {[]string{"registry/guard/guard.go"}, clouds, nil},
		"versions":                       {[]string{"go.sum"}, clouds, nil},
		"the program":                    {[]string{"cmd/cloud-controller-manager/main.go"}, clouds, nil},
		"tests over all clouds":          {[]string{"test/e2e/nodes_test.go"}, clouds, nil},
		"how tests are run":              {[]string{".ci/run"}, clouds, nil},
		"the makefile":                   {[]string{"Makefile"}, clouds, nil},
		"a file in the documentation":    {[]string{"docs/tool.go"}, clouds, nil},
		"a page elsewhere":               {[]string{"registry/notes.md"}, clouds, nil},
		"a cloud that was removed":       {[]string{"providers/gone/provider.go"}, clouds, nil},
		"a file outside of any cloud":    {[]string{"providers/doc.go"}, clouds, nil},
		"a cloud's name as a file":       {[]string{"providers/alpha"}, clouds, nil},
		"a folder that begins like one":  {[]string{"providers/alpha2/a.go"}, clouds, nil},
		"something that nobody knows of": {[]string{"x"}, clouds, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Decide(tc.changed, clouds)
			assert.Equal(t, tc.run, s.Clouds)
			assert.Equal(t, tc.race, s.Race)
			assert.NotEmpty(t, s.Why)
		})
	}
}

// TestRecent: on the main branch every cloud is tested, whatever changed lately.
func TestRecent(t *testing.T) {
	t.Parallel()
	clouds := []string{"alpha", "beta", "gamma"}
	for name, tc := range map[string]struct {
		changed, race []string
	}{
		"one cloud":     {[]string{"providers/beta/model.go"}, []string{"beta"}},
		"the kit":       {[]string{"providers/kit/nodes/nodes.go"}, nil},
		"documentation": {[]string{"README.md"}, nil},
		"nothing":       {nil, clouds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Recent(tc.changed, clouds)
			assert.Equal(t, clouds, s.Clouds)
			assert.Equal(t, tc.race, s.Race)
		})
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	clouds := []string{"alpha", "beta"}
	assert.Equal(t, []string{"CLOUDS=all", "RACE=all"}, Everything(clouds, "").Variables(clouds))
	assert.Equal(t, []string{"CLOUDS=all", "RACE=none"}, Selection{Clouds: clouds}.Variables(clouds))
	assert.Equal(t, []string{"CLOUDS=alpha", "RACE=alpha"}, Selection{Clouds: clouds[:1], Race: clouds[:1]}.Variables(clouds))
}

// TestIncludes: a run of which nothing is said is about every cloud.
func TestIncludes(t *testing.T) {
	t.Parallel()
	assert.True(t, includes("", "alpha"))
	assert.True(t, includes(" ", "alpha"))
	assert.True(t, includes("all", "alpha"))
	assert.True(t, includes("beta alpha", "alpha"))
	assert.False(t, includes("beta", "alpha"))
	assert.False(t, includes("none", "alpha"))
	assert.False(t, includes("alpha2", "alpha"))
}
