package registry

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func TestCheckServiceOf(t *testing.T) {
	t.Parallel()
	p := Provider{
		Name: "alpha",
		Annotations: []schema.AnnotationRow{
			{Key: "lb.example.com/alpha-protocol", Spec: schema.Spec{Kind: schema.KindBool}},
			{Key: "lb.example.com/alpha-port-<port>"},
			{Key: "lb.example.com/alpha-size", Deprecated: "use lb.example.com/alpha-units"},
			{Key: "lb.example.com/alpha-path", Needs: &schema.Where{Key: "lb.example.com/alpha-protocol", OneOf: []string{"true"}}},
		},
		Foreign: map[string]string{"lb.example.com/alpha-protocols": "use another"},
	}
	own := Provider{Name: "own", Domains: []string{"own.example.com"}}
	said := Provider{Name: "beta", CheckService: func(Inputs, *v1.Service) (warnings, err error) {
		return errors.New("a warning"), errors.Join(errors.New("a fault"), errors.New("another"))
	}}
	for name, c := range map[string]struct {
		provider      Provider
		given         map[string]string
		warned, wrong []string
	}{
		"nothing":                {p, nil, nil, nil},
		"known":                  {p, map[string]string{"lb.example.com/alpha-protocol": "x", "lb.example.com/alpha-port-443": "{}"}, nil, nil},
		"of somebody else":       {p, map[string]string{"lb.example.com/beta-protocol": "x", "example.com/protocol": "x", "plain": "x"}, nil, nil},
		"misspelt":               {p, map[string]string{"lb.example.com/alpha-prottocol": "x"}, []string{"annotation lb.example.com/alpha-prottocol: is unknown and has no effect; did you mean lb.example.com/alpha-protocol?"}, nil},
		"of a port":              {p, map[string]string{"lb.example.com/alpha-port-80": "x"}, nil, nil},
		"of another port":        {p, map[string]string{"lb.example.com/alpha-port-81": "x"}, []string{"annotation lb.example.com/alpha-port-81: has no effect: the Service has no port 81"}, nil},
		"of no port":             {p, map[string]string{"lb.example.com/alpha-port-x": "x"}, []string{"annotation lb.example.com/alpha-port-x: is unknown and has no effect"}, nil},
		"misspelt in the domain": {p, map[string]string{"lb.exampel.com/alpha-protocol": "x"}, []string{"annotation lb.exampel.com/alpha-protocol: is unknown and has no effect; did you mean lb.example.com/alpha-protocol?"}, nil},
		"of the family":          {p, map[string]string{"lb.example.com/alpha-something-else": "x"}, []string{"annotation lb.example.com/alpha-something-else: is unknown and has no effect"}, nil},
		"of the domain":          {own, map[string]string{"own.example.com/internal": "x"}, []string{"annotation own.example.com/internal: is unknown and has no effect"}, nil},
		"deprecated":             {p, map[string]string{"lb.example.com/alpha-size": "x"}, []string{"annotation lb.example.com/alpha-size: is deprecated: use lb.example.com/alpha-units"}, nil},
		"without what it needs":  {p, map[string]string{"lb.example.com/alpha-path": "x"}, []string{`annotation lb.example.com/alpha-path: has no effect unless lb.example.com/alpha-protocol is "true"`}, nil},
		"with what it needs":     {p, map[string]string{"lb.example.com/alpha-path": "x", "lb.example.com/alpha-protocol": "True"}, nil, nil},
		"of another controller":  {p, map[string]string{"lb.example.com/alpha-protocols": "x"}, []string{"annotation lb.example.com/alpha-protocols: has no effect here: use another"}, nil},
		"common to all providers": {
			p,
			map[string]string{contract.AnnotationRetain: "perhaps"},
			nil,
			[]string{`annotation ` + contract.AnnotationRetain + `: "perhaps" is not a boolean; use "true" or "false"`},
		},
		"what the provider says": {said, nil, []string{"a warning"}, []string{"a fault", "another"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warnings, err := CheckServiceOf(c.provider, Inputs{}, &v1.Service{
				ObjectMeta: metav1.ObjectMeta{Annotations: c.given}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}, {Port: 443}}},
			})
			assert.Equal(t, c.warned, texts(warnings))
			assert.Equal(t, c.wrong, texts(err))
		})
	}
}

func texts(err error) []string {
	var all []string
	for _, p := range schema.Problems(err) {
		all = append(all, p.Error())
	}
	return all
}
