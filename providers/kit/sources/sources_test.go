package sources

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestParse: networks without bits of hosts, each once; what cannot be read is told of, and lets nobody in.
func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given, want []string
		partial     bool
		problem     string
	}{
		"none":          {nil, []string{"all"}, false, ""},
		"in order":      {[]string{"203.0.113.0/24", "192.0.2.0/24"}, []string{"192.0.2.0/24", "203.0.113.0/24"}, false, ""},
		"spaces":        {[]string{" 192.0.2.0/24 "}, []string{"192.0.2.0/24"}, false, ""},
		"bits of hosts": {[]string{"192.0.2.7/24"}, []string{"192.0.2.0/24"}, false, ""},
		"doubled": {
			[]string{"192.0.2.0/24", "192.0.2.7/24", "2001:DB8::/32", "2001:db8::/32"}, []string{"192.0.2.0/24", "2001:db8::/32"}, false, "",
		},
		"all of a family":    {[]string{"0.0.0.0/0"}, []string{"0.0.0.0/0"}, false, ""},
		"one cannot be read": {[]string{"192.0.2.0/24", "010.0.0.0/8"}, []string{"192.0.2.0/24"}, true, `field: "010.0.0.0/8" is not a network; use a form such as "192.0.2.0/24"`},
		"all are none":       {[]string{"010.0.0.0/8", "192.0.2.7"}, []string{}, true, `field: "192.0.2.7" is not a network`},
		"an empty entry":     {[]string{""}, []string{}, true, "is not a network"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := Parse("field", c.given)
			assert.Equal(t, c.want, set.Texts("all"))
			assert.Equal(t, c.given == nil, set.Everybody())
			assert.Equal(t, c.partial, set.Partial())
			if c.problem == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.problem)
		})
	}
	var many []string
	for i := range 2 * maxProblems {
		many = append(many, fmt.Sprint("nonsense ", i))
	}
	_, err := Parse("field", many)
	assert.Len(t, schema.Problems(err), maxProblems)
}

// TestZeroSetIsNobody: a set that nobody filled opens nothing.
func TestZeroSetIsNobody(t *testing.T) {
	t.Parallel()
	var zero Set
	assert.False(t, zero.Everybody())
	assert.Empty(t, zero.Texts("all"))
	assert.Empty(t, zero.Networks())
}

// TestFamilies: what is left of one family is never everybody.
func TestFamilies(t *testing.T) {
	t.Parallel()
	set, err := Parse("field", []string{"192.0.2.0/24", "2001:db8::/32"})
	require.NoError(t, err)
	assert.Equal(t, []string{"192.0.2.0/24"}, set.Families(true, false).Texts("all"))
	assert.Equal(t, []string{"2001:db8::/32"}, set.Families(false, true).Texts("all"))
	assert.Empty(t, set.Families(false, false).Texts("all"))
	assert.Equal(t, []string{"all"}, Everybody().Families(true, false).Texts("all"))
	assert.Len(t, set.Networks(), 2, "the set itself stays as it is")
}

// TestForService: the field counts before the annotation, and an annotation that holds no network is not an absent one.
func TestForService(t *testing.T) {
	t.Parallel()
	const key = "example.com/ranges"
	for name, c := range map[string]struct {
		field      []string
		annotation string
		want       []string
		problem    bool
		checked    string
	}{
		"neither":                 {nil, "", []string{"all"}, false, ""},
		"the field":               {[]string{"192.0.2.0/24"}, "nonsense", []string{"192.0.2.0/24"}, false, `holds "nonsense", which is not a network`},
		"the annotation":          {nil, "192.0.2.7/24, ,203.0.113.0/24,", []string{"192.0.2.0/24", "203.0.113.0/24"}, false, ""},
		"an unreadable field":     {[]string{"nonsense"}, "192.0.2.0/24", []string{}, true, ""},
		"an unreadable entry":     {nil, "192.0.2.0/24,nonsense", []string{"192.0.2.0/24"}, false, `holds "nonsense", which is not a network`},
		"an annotation of commas": {nil, " , ", []string{}, false, "holds no network"},
		"a blank annotation":      {nil, " ", []string{"all"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := ForService(&v1.Service{Spec: v1.ServiceSpec{LoadBalancerSourceRanges: c.field}}, key)
			if c.annotation != "" {
				s := &v1.Service{Spec: v1.ServiceSpec{LoadBalancerSourceRanges: c.field}}
				s.Annotations = map[string]string{key: c.annotation}
				set, err = ForService(s, key)
			}
			assert.Equal(t, c.want, set.Texts("all"))
			assert.Equal(t, c.problem, err != nil, "%v", err)
			if c.checked == "" {
				require.NoError(t, Check(c.annotation))
				return
			}
			require.ErrorContains(t, Check(c.annotation), c.checked)
		})
	}
}

func TestNarrow(t *testing.T) {
	for name, c := range map[string]struct {
		have, asked []string
		after       []string
		narrower    bool
	}{
		"everybody may connect":       {[]string{"10.0.0.0/8"}, nil, []string{"10.0.0.0/8"}, false},
		"nothing changes":             {[]string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}, false},
		"it widens":                   {[]string{"10.1.0.0/16"}, []string{"10.0.0.0/8", "192.0.2.0/24"}, []string{"10.1.0.0/16"}, false},
		"a part of everybody":         {[]string{"0.0.0.0/0"}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}, true},
		"one of two goes":             {[]string{"10.0.0.0/8", "192.0.2.0/24"}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}, true},
		"another one comes":           {[]string{"10.0.0.0/8"}, []string{"192.0.2.0/24"}, nil, true},
		"what stays has it":           {[]string{"10.0.0.0/8", "0.0.0.0/0"}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}, true},
		"another family":              {[]string{"0.0.0.0/0", "::/0"}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}, true},
		"a part cannot be read":       {[]string{"10.0.0.0/8", "192.0.2.0/24"}, []string{"10.0.0.0/8", "010.0.0.0/8"}, []string{"10.0.0.0/8"}, true},
		"nothing can be read":         {[]string{"10.0.0.0/8"}, []string{"010.0.0.0/8"}, []string{"10.0.0.0/8"}, false},
		"a word is no network":        {[]string{"Internet", "192.0.2.0/24"}, []string{"10.0.0.0/8"}, []string{"Internet"}, true},
		"bits of hosts do not matter": {[]string{"10.1.2.3/8"}, []string{"10.0.0.0/8"}, []string{"10.1.2.3/8"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			set, _ := Parse("", c.asked)
			after, narrower := set.NarrowTexts(c.have, false)
			assert.Equal(t, c.after, after)
			assert.Equal(t, c.narrower, narrower)
		})
	}
}

// TestNarrowToTheWhole: who may connect from now on can do so when the others are shut out.
func TestNarrowToTheWhole(t *testing.T) {
	for name, c := range map[string]struct {
		have, asked []string
		after       []string
		narrower    bool
	}{
		"another one comes":     {[]string{"10.0.0.0/8"}, []string{"192.0.2.0/24"}, []string{"192.0.2.0/24"}, true},
		"it widens":             {[]string{"10.1.0.0/16"}, []string{"10.0.0.0/8"}, []string{"10.1.0.0/16"}, false},
		"a part cannot be read": {[]string{"10.0.0.0/8"}, []string{"192.0.2.0/24", "010.0.0.0/8"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			set, _ := Parse("", c.asked)
			after, narrower := set.NarrowTexts(c.have, true)
			assert.Equal(t, c.after, after)
			assert.Equal(t, c.narrower, narrower)
		})
	}
}
