package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/events"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

type source struct {
	reasons []string
	metrics []metric
	// texts are string constants, and labels the names of those by which code reads labels of Nodes.
	texts  map[string]string
	labels []string
}

// metric is a declared metric.
type metric struct{ name, kind, labels, help string }

// readSource reads the reasons of events, which are constants whose names begin with event, the metrics, and the labels of Nodes that the
// code uses.
func readSource(dir string) (source, error) {
	found := source{texts: map[string]string{}}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasSuffix(entry.Name(), "sim") {
			return fs.SkipDir // simulators are not part of the program
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		texts := constants(file)
		maps.Copy(found.texts, texts)
		for name, text := range texts {
			if strings.HasPrefix(strings.ToLower(name), "event") {
				found.reasons = append(found.reasons, text)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			found.labels = append(found.labels, nodeLabel(n)...)
			if call, ok := n.(*ast.CallExpr); ok {
				if m, ok := metricOf(call, texts); ok {
					found.metrics = append(found.metrics, m)
				}
			}
			return true
		})
		return nil
	})
	slices.Sort(found.reasons)
	slices.SortFunc(found.metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return found, err
}

// constants returns a file's string constants.
func constants(file *ast.File) map[string]string {
	texts := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					if text, ok := literal(spec.Values[i], nil); ok {
						texts[name.Name] = text
					}
				}
			}
		}
		return true
	})
	return texts
}

// literal evaluates a literal or a constant.
func literal(e ast.Expr, texts map[string]string) (string, bool) {
	switch v := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(v.Value)
		return text, err == nil && v.Kind == token.STRING
	case *ast.Ident:
		text, ok := texts[v.Name]
		return text, ok
	}
	return "", false
}

// metricOf reads a call such as metrics.NewCounterVec(&metrics.CounterOpts{…}, []string{"label"}), or metrics.NewDesc("name", "help",
// []string{"label"}, …) for a gauge.
func metricOf(call *ast.CallExpr, texts map[string]string) (metric, bool) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return metric{}, false
	}
	if function.Sel.Name == "NewDesc" && len(call.Args) > 2 {
		name, named := literal(call.Args[0], texts)
		help, helped := literal(call.Args[1], texts)
		return metric{name, "gauge", labelsOf(call.Args[2], texts), help}, named && helped
	}
	kind := strings.TrimSuffix(strings.TrimPrefix(function.Sel.Name, "New"), "Vec")
	if !slices.Contains([]string{"Counter", "Gauge", "Histogram"}, kind) {
		return metric{}, false
	}
	pointer, ok := call.Args[0].(*ast.UnaryExpr)
	if !ok {
		return metric{}, false
	}
	options, ok := pointer.X.(*ast.CompositeLit)
	if !ok {
		return metric{}, false
	}
	fields := map[string]string{}
	for _, e := range options.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				fields[key.Name], _ = literal(pair.Value, texts)
			}
		}
	}
	if fields["Name"] == "" || fields["Help"] == "" {
		return metric{}, false
	}
	parts := slices.DeleteFunc([]string{fields["Namespace"], fields["Subsystem"], fields["Name"]}, func(s string) bool { return s == "" })
	m := metric{name: strings.Join(parts, "_"), kind: strings.ToLower(kind), help: fields["Help"]}
	if len(call.Args) > 1 {
		m.labels = labelsOf(call.Args[1], texts)
	}
	return m, true
}

// labelsOf returns the label names in a literal list.
func labelsOf(e ast.Expr, texts map[string]string) string {
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	var labels []string
	for _, e := range list.Elts {
		text, _ := literal(e, texts)
		labels = append(labels, text)
	}
	return strings.Join(labels, ", ")
}

func metricsTable(list []metric) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range list {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(m.name), m.kind, m.labels, cell(m.help))
	}
	return b.String()
}

// eventRows are all clouds' events by kind of object: shared ones before those of a single cloud.
func eventRows(providers []registry.Provider) []events.Row {
	rows := events.Table()
	for _, p := range providers {
		rows = append(rows, p.Events...)
	}
	kinds := []string{"Node", "Service", "Lease"}
	slices.SortStableFunc(rows, func(a, b events.Row) int { return slices.Index(kinds, a.On) - slices.Index(kinds, b.On) })
	return rows
}

// eventsOf returns the rows of the events that a provider's code writes.
func eventsOf(providers []registry.Provider, reasons []string) []events.Row {
	return slices.DeleteFunc(eventRows(providers), func(r events.Row) bool { return !slices.Contains(reasons, r.Reason) })
}

// eventProblems reports reasons without a row or with several, and unused rows.
func eventProblems(providers []registry.Provider, clouds map[string][]string) error {
	var problems []error
	rows := map[string]int{}
	for _, r := range eventRows(providers) {
		rows[r.Reason]++
		if len(clouds[r.Reason]) == 0 {
			problems = append(problems, fmt.Errorf("event %s has a row, and no code writes it", r.Reason))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(clouds)) {
		switch {
		case rows[reason] == 0:
			problems = append(problems, fmt.Errorf(
				"event %s of %s has no row: write what it means and what to do in events.go of the provider, or in registry/events",
				reason, strings.Join(clouds[reason], ", ")))
		case rows[reason] > 1:
			problems = append(problems, fmt.Errorf("event %s has several rows; what several providers write has its row in registry/events", reason))
		}
	}
	return errors.Join(problems...)
}

// eventsTable lists all events, with the clouds that write them.
func eventsTable(rows []events.Row, clouds map[string][]string) string {
	var b strings.Builder
	b.WriteString("| on | reason | type | clouds | what happened | what to do |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.On, code(r.Reason), r.Type, strings.Join(clouds[r.Reason], ", "), cell(r.What), cell(r.Do))
	}
	return b.String()
}

func providerEventsTable(rows []events.Row) string {
	var b strings.Builder
	b.WriteString("| on | reason | what happened | what to do |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.On, code(r.Reason), cell(r.What), pageLink.ReplaceAllString(cell(r.Do), "](../$1"))
	}
	return b.String()
}

// pageLink matches a link between pages of docs; clouds' pages are one folder deeper.
var pageLink = regexp.MustCompile(`\]\(([\w-]+\.md)`)

// reference writes the pages about all clouds whose tables are generated from code.
func (w *writer) reference(providers []registry.Provider) {
	clouds := map[string][]string{}
	for _, p := range providers {
		found, err := readSource(filepath.Join(w.root, "providers", p.Name))
		if err != nil {
			continue // reported for the provider's own page
		}
		for _, reason := range found.reasons {
			clouds[reason] = append(clouds[reason], p.Title)
		}
	}
	var common []metric
	for _, dir := range []string{"cmd/cloud-controller-manager", "registry", "providers/kit"} {
		found, err := readSource(filepath.Join(w.root, filepath.FromSlash(dir)))
		if err != nil {
			w.problem(fmt.Errorf("reading the code: %w", err))
			continue
		}
		common = append(common, found.metrics...)
		for _, reason := range found.reasons {
			clouds[reason] = []string{"all"}
		}
	}
	slices.SortFunc(common, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	w.problem(eventProblems(providers, clouds))
	w.page("docs/events.md", "", map[string]string{"events": eventsTable(eventRows(providers), clouds)})
	w.page("docs/observability.md", "", map[string]string{"metrics": metricsTable(common)})
	w.page("docs/load-balancer-ownership.md", "", map[string]string{"annotations": annotationsTable(contract.Annotations.Rows())})
	sections, err := examplesTables(w.root, providers)
	w.problem(err)
	maps.Copy(sections, portableTables(providers))
	w.page("docs/portable-annotations.md", "", sections)
	w.page("docs/service-fields.md", "", map[string]string{"fields": fieldTables(providers)})
	w.page("docs/validating-services.md", "", map[string]string{"left": acceptedTable(w.root, providers)})
	w.page("docs/installing.md", "", map[string]string{"clouds": installations(providers)})
	w.page("docs/migrating.md", "", map[string]string{
		"clouds": migrations(providers), "more permissions": morePermissionsTable(providers), "notes": migrationNotes(providers),
	})
	w.page("README.md", "", map[string]string{"clouds": cloudsTable(providers), "features": featuresTable(providers)})
	w.page("README.md", "", map[string]string{"calls": callsTable(w.root, providers), "times": timesTable(w.root, providers)})
}

// callsTable prints the limits of API calls from the clouds' tests, which also report unreadable files.
func callsTable(root string, providers []registry.Provider) string {
	var b strings.Builder
	b.WriteString("| cloud | 1,000 nodes join | a minute of them | a Service is looked at | a restart, 20 Services | a node joins 20 Services: reads; writes | kinds of Services taken over |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, p := range providers {
		var expected struct{ Costs expectations.Costs }
		text, err := os.ReadFile(filepath.Join(root, "providers", p.Name, "testdata", "expectations.yaml"))
		if err != nil || yaml.Unmarshal(text, &expected) != nil || len(expected.Costs.Nodes) == 0 {
			continue
		}
		kinds := slices.Sorted(maps.Keys(expected.Costs.Nodes))
		nodes, s := expected.Costs.Nodes[kinds[0]], expected.Costs.Services
		if plain, ok := expected.Costs.Nodes["plain"]; ok {
			nodes = plain
		}
		fmt.Fprintf(&b, "| %s | %d | %d |", p.Title, nodes.Start, nodes.Minute)
		if s.Unchanged == 0 {
			b.WriteString(" – | – | – | – |\n")
			continue
		}
		fmt.Fprintf(&b, " %d | %d | %s; %d | %s |\n", s.Unchanged, s.Restart, s.Join.MostReads(), s.Join.Writes, countTakeovers(root, p))
	}
	return b.String()
}

// timesTable prints what make bench has written of clouds into docs/sizing.md. A cloud that nobody has measured is left out.
func timesTable(root string, providers []registry.Provider) string {
	changes := []string{"the nodes", "creation", "one more node", "a restart"}
	var b strings.Builder
	b.WriteString("| cloud | a change takes | load balancers | nodes | all nodes join | all are made | one more node | a restart |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	page, _ := os.ReadFile(filepath.Join(root, "docs", "sizing.md")) // a checkout without it has measured nothing
	for _, p := range providers {
		if p.Features.LoadBalancers != registry.Done {
			continue
		}
		_, section, _ := strings.Cut(string(page), "<!-- measured: "+p.Name+", ")
		section, _, _ = strings.Cut(section, "<!-- measured -->")
		_, delay, _ := strings.Cut(section, "the cloud works ")
		delay, _, _ = strings.Cut(delay, " on a change")
		times, most, nodes := map[string]string{}, "", ""
		for line := range strings.Lines(section) {
			if cells := strings.Split(line, " | "); len(cells) > 3 {
				most, nodes = strings.TrimPrefix(cells[0], "| "), cells[1] // numbers grow, and the last ones stay
				times[cells[2]] = cells[3]
			}
		}
		if most == "" {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |", p.Title, delay, most, nodes)
		for _, change := range changes {
			fmt.Fprintf(&b, " %s |", cmp.Or(times[change], "not measured"))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// countTakeovers counts the kinds of Services whose take-over from a cloud's own controller is tested.
func countTakeovers(root string, p registry.Provider) string {
	is, err := expectations.ReadTakeover(root, p)
	switch {
	case err != nil, is.None != "":
		return "–"
	case is.HeldBy != "":
		return code(is.HeldBy)
	}
	return strconv.Itoa(len(is.Kinds))
}

// featuresTable is the matrix of features of nodes and load balancers.
func featuresTable(providers []registry.Provider) string {
	var b strings.Builder
	b.WriteString("| cloud |")
	titles := registry.Features{}.Details()
	for _, d := range titles {
		fmt.Fprintf(&b, " %s |", d.Title)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(titles)) + "\n")
	for _, p := range providers {
		fmt.Fprintf(&b, "| %s |", p.Title)
		for _, d := range p.Features.Details() {
			fmt.Fprintf(&b, " %s |", short(d.Support))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short abbreviates a feature's state for a table: a dash if the cloud has none.
func short(s registry.Support) string {
	if s == registry.CloudHasNone {
		return "–"
	}
	return s.String()
}

// cloudsTable is the matrix of functions by cloud.
func cloudsTable(providers []registry.Provider) string {
	var b strings.Builder
	b.WriteString("| cloud | support | nodes | load balancers | routes | further | options | annotations |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, p := range providers {
		fmt.Fprintf(&b, "| [%s](docs/providers/%s.md) | %s | %s | %s | %s | %s | %d | %d |\n", p.Title, p.Name, p.Stability,
			short(p.Features.Instances), short(p.Features.LoadBalancers), short(p.Features.Routes), strings.Join(p.Extras, ", "),
			len(p.Options), len(p.Annotations))
	}
	return b.String()
}
