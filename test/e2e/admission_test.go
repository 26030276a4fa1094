package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// agreesWithValidate: over every annotation with legal and illegal values, the admission policy, which is in force, is never stricter than
// `validate`, whatever the options are; where it is weaker, the page about validation names the annotation.
func agreesWithValidate(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	p, err := registry.Linked().Lookup(cluster.Provider)
	require.NoError(t, err)
	left := map[string]string{}
	for _, tried := range judgeAll(t, cluster, annotationSets(p)) {
		annotations, verdict := tried.annotations, tried.verdict
		require.NoError(t, verdict.failed, "%v", shown(annotations))
		refused, ignored := judgements(p, annotations)
		for i := range refused {
			if verdict.denied != "" {
				assert.NotEmpty(t, refused[i], "stricter than validate with the options %v: %v: %s", optionSets(p)[i], shown(annotations), verdict.denied)
			}
			if verdict.warned != "" {
				assert.NotEmpty(t, slices.Concat(refused[i], ignored[i]), "warns where validate does not: %v: %s", shown(annotations), verdict.warned)
			}
		}
		if verdict.denied == "" && !tried.huge && alwaysRefused(refused, tried.key) {
			left[tried.row] = fmt.Sprintf("%v: %.300s", shown(annotations), refused[0][0])
		}
	}
	agreeOnWhatIsLeft(t, p, left)
}

var update = flag.Bool("update", false, "write which annotations the admission policy leaves to the controllers")

// agreeOnWhatIsLeft holds what the policy does not judge against what the documentation says of it, which is generated from this file.
func agreeOnWhatIsLeft(t *testing.T, p registry.Provider, left map[string]string) {
	t.Helper()
	path := filepath.Join("..", "..", "providers", p.Name, "testdata", "admission-left.txt")
	text := strings.Join(slices.Sorted(maps.Keys(left)), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err, "run this test with -update, then make generate")
	if !assert.Equal(t, string(content), text, "run this test with -update, then make generate; see whether the policy cannot judge these itself") || *update {
		for _, row := range slices.Sorted(maps.Keys(left)) {
			t.Log(row, left[row])
		}
	}
}

// alwaysRefused reports whether validate refuses a value of an annotation under all option sets.
func alwaysRefused(refused [][]string, key string) bool {
	return !slices.ContainsFunc(refused, func(of []string) bool {
		return !slices.ContainsFunc(of, func(one string) bool { return strings.Contains(one, key) })
	})
}

// shown are annotations as a message has them: of long values the beginning.
func shown(annotations map[string]string) map[string]string {
	short := map[string]string{}
	for key, value := range annotations {
		short[key] = fmt.Sprintf("%.60s", value)
	}
	return short
}

// tried is one Service that was judged for a value of the annotation key, of which row is the name in the tables.
type tried struct {
	key, row    string
	huge        bool
	annotations map[string]string
	verdict     verdict
}

// verdict is the API server's response to a Service.
type verdict struct {
	denied, warned string
	failed         error
}

// warnings collects what the API server warns of.
type warnings struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// admit lets the API server judge a Service without keeping it.
func admit(ctx context.Context, config *rest.Config, annotations map[string]string) verdict {
	heard := &warnings{}
	config = rest.CopyConfig(config)
	config.WarningHandler = heard
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return verdict{failed: err}
	}
	_, err = client.CoreV1().Services(metav1.NamespaceDefault).Create(
		ctx, serviceOf("judged", v1.ServiceTypeLoadBalancer, annotations), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}},
	)
	v := verdict{failed: err}
	if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		v = verdict{denied: err.Error()}
	}
	if err != nil && strings.Contains(err.Error(), "is invalid") { // by the API server's own rules
		v = verdict{}
	}
	for _, text := range heard.texts {
		if strings.Contains(text, "ValidatingAdmissionPolicy") || strings.Contains(text, "alidation failed for") {
			v.warned += text
		}
	}
	return v
}

// judgeAll asks the API server about all sets of annotations, some at a time.
func judgeAll(t *testing.T, cluster *harness.Cluster, sets []tried) []tried {
	t.Helper()
	var group sync.WaitGroup
	next := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range next {
				sets[i].verdict = admit(t.Context(), cluster.API.Config(), sets[i].annotations)
			}
		})
	}
	for i := range sets {
		next <- i
	}
	close(next)
	group.Wait()
	return sets
}

// optionSets are the options under which a Service may be judged: the defaults, and each choice of each option that has some.
func optionSets(p registry.Provider) []map[string]string {
	sets := []map[string]string{{}}
	for _, o := range p.Options {
		values := o.Choices
		if o.Kind == schema.KindBool {
			values = []string{"true", "false"}
		}
		for _, value := range values {
			if o.Env != "" {
				sets = append(sets, map[string]string{o.Env: value})
			}
		}
	}
	return sets
}

// judgements returns the annotations that validate refuses, and those it warns of, under each of the option sets.
func judgements(p registry.Provider, annotations map[string]string) (refused, ignored [][]string) {
	for _, set := range optionSets(p) {
		in := registry.Inputs{Sources: schema.Sources{
			LookupEnv: func(name string) (string, bool) { v, ok := set[name]; return v, ok }, AllowInsecureEndpoints: true,
		}}
		service := serviceOf("judged", v1.ServiceTypeLoadBalancer, annotations)
		registry.AsStored(service)
		if p.LeavesAlone != nil && p.LeavesAlone(in)(service) {
			in = registry.Inputs{} // the policy is told by the chart's classes, not by options, what is left to other controllers
		}
		warned, err := registry.CheckServiceOf(p, in, service)
		refused, ignored = append(refused, texts(err)), append(ignored, texts(warned))
	}
	return refused, ignored
}

func texts(err error) []string {
	var all []string
	for _, one := range schema.Problems(err) {
		all = append(all, one.Error())
	}
	return all
}

// annotationSets are all annotations with values of every kind, in each of the surroundings that a condition of the table asks for.
func annotationSets(p registry.Provider) []tried {
	var sets []tried
	rows := slices.Concat(p.Annotations, contract.Annotations.Rows(), portable.Annotations.Rows())
	for _, around := range surroundings(rows, p.ServedElsewhere) {
		for _, row := range rows {
			if len(around) > 0 && row.Where == nil && row.ReadIf() == nil && !strings.HasPrefix(row.Key, portable.Prefix) {
				continue // it is judged alike everywhere
			}
			for _, value := range sampleValues(row) {
				set := maps.Clone(around)
				key := strings.Replace(row.Key, schema.Numbered, "80", 1)
				set[key] = value
				sets = append(sets, tried{key: key, row: row.Key, huge: slices.Contains(hugeValues, value), annotations: set})
			}
		}
	}
	return sets
}

// surroundings are the annotations by which conditions hold, none first.
func surroundings(rows []schema.AnnotationRow, elsewhere *schema.Where) []map[string]string {
	all := []map[string]string{{}}
	add := func(w *schema.Where) {
		if w == nil {
			return
		}
		values := slices.Concat(w.OneOf, w.NoneOf)
		if w.Present {
			values = []string{""}
		}
		for _, value := range values {
			set := map[string]string{w.Key: value}
			if !slices.ContainsFunc(all, func(known map[string]string) bool { return maps.Equal(known, set) }) {
				all = append(all, set)
			}
		}
	}
	add(elsewhere)
	for _, row := range rows {
		add(row.Where)
		add(row.ReadIf())
		for _, s := range row.Serves {
			add(s.Where)
		}
	}
	return all
}

// hugeValues are beyond what the policy's language can count; of none of them is said that the policy refuses it.
var hugeValues = []string{"9999999999999999999", "-9999999999999999999", "99999999999999999999", "10000000h"}

// sampleValues are legal and illegal values of a row.
func sampleValues(row schema.AnnotationRow) []string {
	values := []string{"", "x", "true", "-1", "http://user@host/?a=b#c"}
	switch row.Kind {
	case schema.KindBool:
		values = append(values, "True", "tRUE", "1", "yes", " true")
	case schema.KindInt, schema.KindFloat, schema.KindIntList:
		values = append(values, "0", "1", "+5", "007", "80", "80,443", " 80 , 443", "80,", "8e1", "0x10", "65536", strings.Repeat("0", 30)+"5",
			"999999999999999999", "1234567890123456789", "-1234567890123456789")
		values = append(values, hugeValues...)
		for _, bound := range []*float64{row.Min, row.Max} {
			if bound != nil {
				n := int(*bound)
				values = append(values, strconv.Itoa(n-1), strconv.Itoa(n), strconv.Itoa(n+1))
			}
		}
	case schema.KindDuration:
		values = append(values, "0", "5s", "90", "1.5h", "1h30m", "-5s", "+5s", ".5s", "5", "1500ms", "3µs", "10000000h", "5S")
	case schema.KindEnum:
		for _, c := range row.Choices {
			values = append(values, c, strings.ToUpper(c), strings.ToLower(c), c+" ")
		}
	case schema.KindURL:
		values = append(values, "https://example.com/a", "ftp://example.com")
	case schema.KindString, schema.KindList, schema.KindSecret:
		values = append(values, "a,b", "a=b,c=d", "a=b=c", ",", " ", "192.0.2.1", "192.0.2.0/24", "2001:db8::1", "/path", "no path", "80", "tcp", "80:tcp",
			"example.com", "*", "a/../b", "ä", `{"a":"b"}`, "{", "secret:web", "80,x", strings.Repeat("a", 64), strings.Repeat("a", 300))
	}
	if row.ID != nil {
		values = append(values, row.ID.Example, row.ID.Example+"/", " "+row.ID.Example+" ", row.ID.Example+","+row.ID.Example)
	}
	return append(values, strings.Repeat("é", row.Longest()), strings.Repeat("1", row.Longest()+1))
}
