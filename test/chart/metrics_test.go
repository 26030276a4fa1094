package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// rule is an alert of the PrometheusRule.
type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

// rules are the alerts of a release.
func rules(t *testing.T, release, values string) []rule {
	t.Helper()
	all := objects(t, render(t, release, installedValues(clouds()[0])+values))
	for name, o := range all {
		if !strings.HasPrefix(name, "PrometheusRule/") {
			continue
		}
		text, err := yaml.Marshal(o)
		require.NoError(t, err)
		var decoded struct {
			Spec struct{ Groups []struct{ Rules []rule } }
		}
		require.NoError(t, yaml.Unmarshal(text, &decoded))
		require.Len(t, decoded.Spec.Groups, 1)
		return decoded.Spec.Groups[0].Rules
	}
	t.Fatal("no PrometheusRule is rendered")
	return nil
}

var (
	aggregation = regexp.MustCompile(`\b(sum|min|max|avg|count|group|stddev|stdvar|topk|bottomk|quantile|count_values)( by \(cluster, namespace[,)]| without \((.*?)\)|[ (])`)
	matching    = regexp.MustCompile(`\b(on|ignoring)\s*\((.*?)\)`)
)

// joinedClusters returns what of an expression puts series of several clusters or releases together; absent has no series to tell apart.
func joinedClusters(expression string) (joined []string) {
	for _, m := range aggregation.FindAllStringSubmatch(expression, -1) {
		if len(m[2]) == 1 || strings.Contains(m[3], "cluster") || strings.Contains(m[3], "namespace") {
			joined = append(joined, m[0])
		}
	}
	for _, m := range matching.FindAllStringSubmatch(expression, -1) {
		cluster, namespace := strings.Contains(m[2], "cluster"), strings.Contains(m[2], "namespace")
		if m[1] == "on" && (!cluster || !namespace) || m[1] == "ignoring" && (cluster || namespace) {
			joined = append(joined, m[0])
		}
	}
	return joined
}

// TestJoinedClusters: the rule sees what it is for.
func TestJoinedClusters(t *testing.T) {
	t.Parallel()
	for expression, joined := range map[string]bool{
		"max by (cluster, namespace, provider) (x) == 0": false, "max by (provider) (x) == 0": true, "sum(x) > 0": true, "x > 0": false,
		"max by (cluster, namespace) (x) / sum by (provider) (y)": true, "sum without (cluster) (x)": true, "sum without (pod) (x)": false,
		"x / on (provider) y": true, "x / on (cluster, namespace) y": false, "x and ignoring (cluster) y": true, "absent(x)": false,
	} {
		assert.Equal(t, joined, len(joinedClusters(expression)) > 0, expression)
	}
}

// TestAlerts: each alert has a heading on the page with what to do, looks at nobody else's series, and tells how bad it is.
func TestAlerts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (\S+)$`).FindAllStringSubmatch(string(page), -1) {
		headings["#"+strings.ToLower(m[1])] = true
	}
	const enabled = "metrics: {rules: {enabled: true}}\n"
	all := rules(t, "mine", enabled)
	require.GreaterOrEqual(t, len(all), 7)
	for _, r := range all {
		assert.NotContains(t, r.Expr, "@", r.Alert)
		assert.Empty(t, joinedClusters(r.Expr), "%s keeps the labels by which its release is found", r.Alert)
		assert.Contains(t, r.Expr, `{namespace="ccm",job=~"(ccm/)?mine-cloud-controller-manager(-metrics)?"}`, r.Alert)
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		page, anchor, found := strings.Cut(r.Annotations["runbook_url"], "#")
		assert.True(t, found, r.Alert)
		assert.Equal(t, "https://github.com/anyccm/cloud-controller-manager/blob/main/docs/observability.md", page)
		assert.True(t, headings["#"+anchor], "docs/observability.md has no heading %s", r.Alert)
		assert.Equal(t, strings.ToLower(r.Alert), anchor)
	}
	for _, r := range rules(t, "mine", "metrics: {rules: {enabled: true, selector: 'job=\"x\"', runbooks: 'https://wiki.example.com/ccm'}}\n") {
		assert.Contains(t, r.Expr, `{job="x"}`)
		assert.Contains(t, r.Annotations["runbook_url"], "https://wiki.example.com/ccm#")
	}
}
