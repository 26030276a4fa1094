package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// oddValues are of every kind, each of them illegal for some annotations and legal for others.
var oddValues = []string{"", "x", "0", "-1", "1000000", "true", "https", "a b", "1.2.3.4", "1.2.3.4/33", "{", "a=b", "80", "10s"}

// runForetold: what the event of an annotation says, validate says before, unless only the cloud or its nodes know. The fast tier tries the
// Service with the fewest annotations, and some of the values.
func runForetold(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	kinds := readFixture(t, newFixture, func(f *Fixture) map[string]Case { return f.Services })
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(len(kinds[a].Service.Annotations)-len(kinds[b].Service.Annotations), strings.Compare(a, b))
	})
	all := triesAll(t, newFixture)
	if !all {
		names = names[:1]
	}
	for _, kind := range names {
		virtual(t, kind, func(t *testing.T) {
			w := newWorld(t, newFixture(t))
			w.addNode(t.Context(), "worker", nil)
			n := 0
			for i, row := range w.Provider.Annotations {
				for j, value := range valuesToTry(row) {
					const every = 8
					if !all && (i+j)%every != 0 {
						continue
					}
					n++
					w.requireForetold(foretoldService(w.Services[kind].Service, row, value, n))
				}
			}
		})
	}
}

// foretoldService is a Service with a value for one annotation.
func foretoldService(like *v1.Service, row schema.AnnotationRow, value string, n int) *v1.Service {
	s := like.DeepCopy()
	s.Name, s.UID = fmt.Sprintf("foretold-%d", n), types.UID(fmt.Sprintf("5eed0000-495b-4884-9a69-%012d", n))
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	if row.Where != nil && len(row.Where.OneOf) > 0 {
		s.Annotations[row.Where.Key] = row.Where.OneOf[0]
	}
	s.Annotations[strings.ReplaceAll(row.Key, "<port>", strconv.Itoa(int(s.Spec.Ports[0].Port)))] = value
	return s
}

// valuesToTry are odd values and the legal ones of a row, with those beside its bounds.
func valuesToTry(row schema.AnnotationRow) []string {
	all := slices.Concat(oddValues, row.Choices)
	for _, bound := range []*float64{row.Min, row.Max} {
		if bound != nil {
			all = append(all, strconv.Itoa(int(*bound)-1), strconv.Itoa(int(*bound)), strconv.Itoa(int(*bound)+1))
		}
	}
	return all
}

// requireForetold: each fault that the events tell of a Service's annotations is one that validate told.
func (w *world) requireForetold(s *v1.Service) {
	ctx := w.t.Context()
	warned, refused := registry.CheckServiceOf(w.Provider, w.Inputs(), s)
	w.createService(ctx, s)
	if err := w.ensureToEnd(ctx, s); err == nil {
		w.requireNoCrash(w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, w.service(ctx, s)))
	}
	time.Sleep(time.Second)
	list, err := w.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	told := fmt.Sprint(errors.Join(warned, refused))
	for _, e := range list.Items {
		if e.InvolvedObject.Name != s.Name || (e.Reason != contract.EventConfigError && e.Reason != contract.EventAnnotationIgnored) {
			continue
		}
		_, text, combined := strings.Cut(e.Message, "(combined from similar events): ")
		if !combined {
			text = e.Message
		}
		known := func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(text) }
		if !strings.Contains(told, text) && !slices.ContainsFunc(w.OnlyThere, known) {
			assert.Fail(w.t, "not foretold", "%v: %s: %s; validate: %s", s.Annotations, e.Reason, text, told)
		}
	}
}
