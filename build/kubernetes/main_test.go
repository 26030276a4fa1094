package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	decoder, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		manifests string
		objects   int
		problem   string
	}{
		"known":                      {"# a comment\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n", 1, ""},
		"two":                        {"apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Secret\n", 2, ""},
		"unknown field":              {"apiVersion: apps/v1\nkind: DaemonSet\nspec: {template: {spec: {hostNetworks: true}}}\n", 1, `unknown field "spec.template.spec.hostNetworks"`},
		"wrong type":                 {"apiVersion: v1\nkind: Service\nspec: {ports: [{port: http}]}\n", 1, "port"},
		"unknown version":            {"apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\n", 1, "no kind"},
		"of the Prometheus operator": {"apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\n", 1, ""},
		"nothing":                    {"# a comment\n", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := check(decoder, []byte(c.manifests))
			if objects != c.objects {
				t.Errorf("%d objects, not %d", objects, c.objects)
			}
			switch {
			case c.problem == "" && err != nil:
				t.Error(err)
			case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
				t.Errorf("%v; want: %s", err, c.problem)
			}
		})
	}
}
