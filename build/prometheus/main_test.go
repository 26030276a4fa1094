package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const rules = `groups:
- name: g
  rules:
  - {alert: Down, expr: 'max by (provider) (up_now{job=~"a|b"}) == 0', for: 5m}
  - {alert: Old, expr: 'time() - since > 60'}
  - {alert: Nothing, expr: 'absent(up_now{job="a"})', for: 10m}
`

const dashboard = `{"panels": [{"title": "p", "targets": [{"expr": "rate(calls_total{job=~\"$job\"}[5m])"}, {"expr": "up_now == 2"}]}]}`

// evaluate runs the command on one scrape of each text.
func evaluate(t *testing.T, rules, hold string, scrapes ...string) (answer, error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{"-rules=" + write("rules", rules), "-dashboard=" + write("dashboard", dashboard), "-labels=job=a,cluster=c,namespace=n", "-at=1000", "-hold=" + hold}
	for i, text := range scrapes {
		args = append(args, write("scrape"+string(rune('0'+i)), text))
	}
	var out bytes.Buffer
	var a answer
	if err := run(t.Context(), args, &out); err != nil {
		return a, err
	}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	return a, nil
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	const works, down = "# TYPE up_now gauge\nup_now{provider=\"x\"} 1\nsince 990\ncalls_total 3\n", "up_now{provider=\"x\"} 0\nsince 990\n"
	for name, c := range map[string]struct {
		hold    string
		scrapes []string
		firing  []string
	}{
		"works":                      {"30s", []string{works}, nil},
		"time goes on":               {"1m30s", []string{works}, []string{"Old"}},
		"down, and not for long yet": {"4m", []string{down}, []string{"Old"}},
		"down for long":              {"6m", []string{down}, []string{"Down", "Old"}},
		"one of two works":           {"6m", []string{down, works}, []string{"Old"}},
		"nothing is scraped":         {"10m", nil, []string{"Nothing"}},
		"nothing, for a moment":      {"9m", nil, nil},
	} {
		a, err := evaluate(t, rules, c.hold, c.scrapes...)
		if err != nil {
			t.Fatal(name, err)
		}
		var firing []string
		for alert := range a.Firing {
			firing = append(firing, alert)
		}
		slices.Sort(firing)
		if !slices.Equal(firing, c.firing) {
			t.Errorf("%s: %v ring, want %v", name, firing, c.firing)
		}
		if c.scrapes == nil || c.scrapes[0] == down {
			continue
		}
		want := map[string]int{`rate(calls_total{job=~"$job"}[5m])`: 1, "up_now == 2": 0}
		if c.hold != "30s" && !reflect.DeepEqual(a.Series, want) {
			t.Errorf("%s: the dashboard has %v", name, a.Series)
		}
	}
}

// TestUnservedServicesRing: the chart's rules, on what the program exports of Services that are not served: each reason rings after a
// while, with the labels by which an operator of many clusters finds it.
func TestUnservedServicesRing(t *testing.T) {
	t.Parallel()
	exported, err := os.ReadFile("../../registry/guard/testdata/unserved.prom")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../charts/cloud-controller-manager/files/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.NewReplacer("@release@", `job="a"`, "@runbooks@", "page").Replace(string(text))
	const alert = "CloudControllerManagerServicesNotServed"
	// The scrape is of the time 1000; the oldest Services were made at 300, 400 and 500.
	for hold, want := range map[string][]string{
		"4m": nil, "9m": {"settings"}, "11m": {"cloud", "settings"}, "15m": {"cloud", "pending", "settings"},
	} {
		a, err := evaluate(t, rules, hold, string(exported))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Firing[alert]) != len(want) {
			t.Errorf("after %s %v ring, want %v", hold, a.Firing[alert], want)
		}
		for _, reason := range want {
			if !strings.Contains(strings.Join(a.Firing[alert], "\n"), `reason="`+reason+`"`) {
				t.Errorf("after %s %v ring, want %s", hold, a.Firing[alert], reason)
			}
		}
		for _, firing := range a.Firing[alert] {
			if !strings.Contains(firing, `cluster="c"`) || !strings.Contains(firing, `namespace="n"`) || !strings.Contains(firing, `provider="unserved"`) {
				t.Errorf("%s cannot be found", firing)
			}
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	wrong := strings.Replace(rules, "max by", "maximum by", 1)
	if _, err := evaluate(t, wrong, "1m", "up_now 1\n"); err == nil || !strings.Contains(err.Error(), "Down") {
		t.Errorf("a rule that cannot be parsed: %v", err)
	}
	if _, err := evaluate(t, rules, "1m", "up_now{ 1\n"); err == nil {
		t.Error("a scrape that cannot be parsed is taken")
	}
}
