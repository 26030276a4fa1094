package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// transcript is the text of a scenario.
type transcript struct {
	out     strings.Builder
	names   names
	secrets []string
	// leaks are texts for people that have a secret in them.
	leaks []string
	// eventCounts is how often each event was there already.
	eventCounts map[string]int32
	// bodies are those that were sent last, by the kind of object.
	bodies map[string]map[string]any
	ports  map[string][]string
	// documents are the fields that each write of a whole document changes, by the call.
	documents sync.Map
}

func newTranscript(secrets []string) *transcript {
	return &transcript{
		secrets: secrets, names: names{byIdentity: map[string]string{}, services: map[string]string{}}, eventCounts: map[string]int32{},
		bodies: map[string]map[string]any{},
	}
}

// String is the whole text.
func (tr *transcript) String() string { return tr.out.String() }

// playedStep is the record of a step in a transcript.
type playedStep struct {
	name                      string
	plans                     []planOf
	calls                     []simkit.Call
	answers, events, services []string
	ports                     map[string][]string
	unplanned, gaps, wrong    []string
}

func (tr *transcript) addStep(s playedStep) {
	if tr.out.Len() > 0 {
		tr.out.WriteString("\n")
	}
	fmt.Fprintf(&tr.out, "== %s\n", s.name)
	tr.addPlans(s.plans)
	tr.addCalls(s.calls)
	tr.addSection("answers", tr.checkTexts(mergeRepeats(s.answers)))
	slices.Sort(s.events)
	tr.addSection("events", tr.checkTexts(s.events))
	tr.addSection("services", tr.checkTexts(s.services))
	if !reflect.DeepEqual(tr.ports, s.ports) {
		tr.addSection("serves", listPorts(s.ports))
	}
	tr.ports = s.ports
	tr.addSection("not as planned", s.unplanned)
	tr.addSection("gaps", s.gaps)
	tr.addSection("not to all nodes", s.wrong)
}

func (tr *transcript) addSection(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	tr.out.WriteString(title + "\n")
	for _, line := range lines {
		tr.out.WriteString("  " + strings.ReplaceAll(strings.TrimRight(line, "\n"), "\n", "\n  ") + "\n")
	}
}

// addRemains adds what the cloud has at the end.
func (tr *transcript) addRemains(snapshot string) {
	lines := []string{"nothing"}
	if strings.TrimSpace(snapshot) != "" {
		lines = []string{tr.hide(tr.names.apply(layOutSnapshot(snapshot)))}
	}
	tr.out.WriteString("\n")
	tr.addSection("== left", lines)
}

// checkTexts names identities in texts that people read, and notes those that have a secret in them.
func (tr *transcript) checkTexts(lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		for _, secret := range tr.secrets {
			if strings.Contains(line, secret) {
				tr.leaks = append(tr.leaks, tr.hide(line))
			}
		}
		all[i] = tr.hide(tr.names.apply(line))
	}
	return all
}

// addPlans adds what plan said, with the fields of each change.
func (tr *transcript) addPlans(plans []planOf) {
	var lines []string
	for _, p := range plans {
		if p.err != nil {
			lines = append(lines, p.service+": "+p.err.Error())
		}
		for _, c := range p.changes {
			line := []string{describeChange(c)}
			for _, f := range c.Fields {
				line = append(line, "  "+describeField(f))
			}
			lines = append(lines, strings.Join(line, "\n"))
		}
	}
	tr.addSection("plan", tr.checkTexts(lines))
}

func describeField(f contract.Field) string {
	switch {
	case f.Before == "":
		return f.Name + ": " + f.After
	case f.After == "":
		return f.Name + ": " + f.Before + " -> nothing"
	}
	return f.Name + ": " + f.Before + " -> " + f.After
}

// addCalls adds reads, counted by operation, and writes in full.
func (tr *transcript) addCalls(all []simkit.Call) {
	reads, same, last := map[string]int{}, map[string]int{}, map[string]int{}
	var writes []string
	for _, c := range tr.orderCalls(all) {
		if c.Write {
			writes = append(writes, tr.describeWrite(c))
			continue
		}
		reads[c.Operation]++
		if last[c.Method+c.URL+c.Body]++; last[c.Method+c.URL+c.Body] > 1 {
			same[c.Operation]++
		}
	}
	var lines []string
	for _, operation := range sortedKeys(reads) {
		line := fmt.Sprintf("%d %s", reads[operation], operation)
		if same[operation] > 0 {
			line += fmt.Sprintf(" (%d again)", same[operation])
		}
		lines = append(lines, line)
	}
	tr.addSection("reads", lines)
	tr.addSection("writes", writes)
}

// orderCalls sorts calls into their order. Those of the same moment have none, and are sorted.
func (tr *transcript) orderCalls(calls []simkit.Call) []simkit.Call {
	calls = slices.Clone(calls)
	key := func(c simkit.Call) string { return c.Operation + "\n" + tr.names.apply(c.URL+"\n"+c.Body) }
	slices.SortStableFunc(calls, func(a, b simkit.Call) int {
		if order := a.At.Compare(b.At); order != 0 {
			return order
		}
		return strings.Compare(key(a), key(b))
	})
	return calls
}

// describeWrite returns what a transcript has of a call that changes something.
func (tr *transcript) describeWrite(c simkit.Call) string {
	at, query, _ := strings.Cut(c.URL, "?")
	line := c.Method + " " + tr.hide(tr.names.apply(at))
	if !strings.Contains(line, c.Operation) && !strings.Contains(c.Operation, "{") {
		line += " " + c.Operation
	}
	if c.Status >= 300 || c.Fault != "" {
		line += fmt.Sprintf(" = %d %s", c.Status, c.Fault)
	}
	var body string
	if values, err := url.ParseQuery(query); err == nil && query != "" {
		body = tr.describeForm(values)
	}
	if text := tr.describeBody(c); text != "" {
		body += "\n" + text
	}
	if body = strings.Trim(body, "\n"); body != "" {
		line += "\n  " + strings.ReplaceAll(body, "\n", "\n  ")
	}
	return strings.TrimRight(line, " ")
}

// accidental are parameters that say nothing, and differ from run to run.
var accidental = []string{
	"signature", "signatureVersion", "expires", "apiKey", "requestId", "ClientToken", "Version", "response", "alt", "prettyPrint",
}

// describeForm lays out a form, a line for each value.
func (tr *transcript) describeForm(values url.Values) string {
	var lines []string
	for _, key := range sortedKeys(values) {
		if slices.ContainsFunc(accidental, func(a string) bool { return strings.EqualFold(a, key) }) {
			continue
		}
		for _, v := range values[key] {
			lines = append(lines, key+"="+tr.replaceValue(key, v))
		}
	}
	return strings.Join(lines, "\n")
}

// replaceValue names identities in a value of a form or of a document, and hides it where its name says that it is a secret.
func (tr *transcript) replaceValue(key, v string) string {
	if secretKey.MatchString(key) && v != "" {
		return hiddenValue
	}
	return tr.hide(tr.names.apply(v))
}

var (
	secretKey   = regexp.MustCompile(`(?i)(password|passwd|passphrase|private_?key|ssl_key|secret_?(key|value|access)?$|^token$)`)
	pemBlock    = regexp.MustCompile(`-----BEGIN ([A-Z ]+)-----[^-]*-----END [A-Z ]+-----(\\n|\n)?`)
	hiddenValue = "(hidden)"
)

// hide takes secrets and certificates from a text.
func (tr *transcript) hide(text string) string {
	text = pemBlock.ReplaceAllStringFunc(text, func(block string) string {
		if strings.Contains(block, "KEY") {
			return hiddenValue
		}
		return "(certificate)"
	})
	for _, secret := range tr.secrets {
		text = strings.ReplaceAll(text, secret, hiddenValue)
	}
	return text
}

// describeBody lays out the body of a call: JSON, a form or XML. Of an object that was sent before, only the fields that differ from then
// are shown.
func (tr *transcript) describeBody(c simkit.Call) string {
	body := strings.TrimSpace(c.Body)
	if fields, ok := tr.documents.Load(c.Method + c.URL + c.Body); ok {
		return tr.describeFields(fields.([]contract.Field)) //nolint:forcetypeassert // there is nothing else in it
	}
	switch {
	case body == "":
		return ""
	case strings.HasPrefix(body, "<"):
		return tr.describeXML(body)
	case !strings.HasPrefix(body, "{") && !strings.HasPrefix(body, "["):
		if values, err := url.ParseQuery(body); err == nil {
			return tr.describeForm(values)
		}
		return tr.hide(tr.names.apply(body))
	}
	document, err := decode(body)
	if err != nil {
		return tr.hide(tr.names.apply(body))
	}
	document = tr.replaceValues("", document)
	if object, ok := document.(map[string]any); ok {
		return tr.compareObject(c, object)
	}
	return layOut(document, "")
}

// compareObject lays out a body, or what of it differs from the object that was sent there before.
func (tr *transcript) compareObject(c simkit.Call, object map[string]any) string {
	at, kind := tr.names.apply(c.URL), findKind(c.Operation)
	before, like := tr.bodies[at], "as before"
	if before == nil {
		before, like = tr.bodies[kind], "as the one that was created last"
	}
	tr.bodies[at] = object
	if c.Method == http.MethodPost {
		tr.bodies[kind] = object
		like = "as the one that was created last"
	}
	if before == nil {
		return layOut(object, "")
	}
	different := map[string]any{}
	for key, value := range object {
		if have, sent := before[key]; !sent || !reflect.DeepEqual(have, value) {
			different[key] = value
		}
	}
	var gone []string
	for key := range before {
		if _, sent := object[key]; !sent {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	if same := len(object) - len(different); same < 3 {
		return layOut(object, "")
	}
	text := like
	if len(gone) > 0 {
		text += ", without " + strings.Join(gone, ", ")
	}
	if len(different) > 0 {
		text += ", with\n" + layOut(different, "")
	}
	return text
}

// learnDocument keeps what a write of a whole document changes. It is called before the write.
func (tr *transcript) learnDocument(r *http.Request, body []byte, show func(path string, sent map[string]any) (before, after any)) {
	var sent map[string]any
	if json.Unmarshal(body, &sent) != nil {
		return
	}
	before, after := show(r.URL.Path, sent)
	tr.documents.Store(r.Method+r.URL.String()+string(body), services.Fields(before, after))
}

// describeFields says what a write of a whole document changes, a line for each field.
func (tr *transcript) describeFields(fields []contract.Field) string {
	lines := []string{"a document that changes nothing"}
	if len(fields) > 0 {
		lines = lines[:0]
	}
	for _, f := range fields {
		lines = append(lines, tr.hide(tr.names.apply(describeField(f))))
	}
	return strings.Join(lines, "\n")
}

// findKind returns the kind of object that an operation is about.
func findKind(operation string) string {
	_, at, _ := strings.Cut(operation, " ")
	if at == "" {
		return operation
	}
	if cut := strings.LastIndex(at, "/{"); cut > 0 && strings.HasSuffix(at, "}") {
		at = at[:cut]
	}
	return at
}

func decode(text string) (v any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	return v, decoder.Decode(&v)
}

// replaceValues puts names in the place of identities in a document, and hides secrets.
func (tr *transcript) replaceValues(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for k, value := range v {
			if slices.ContainsFunc(accidental, func(a string) bool { return strings.EqualFold(a, k) }) {
				continue
			}
			all[tr.names.apply(k)] = tr.replaceValues(k, value)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = tr.replaceValues(key, v[i])
		}
		return all
	case string:
		return tr.replaceValue(key, v)
	case json.Number:
		if name := tr.names.apply(v.String()); name != v.String() {
			return name
		}
	}
	return v
}

// width is how long a line of a transcript may be before a document is broken up.
const width = 120

// A list of longList elements, or with nulls in it, has each on a line of up to elementWidth, without the nulls.
const longList, elementWidth = 4, 240

func dropNulls(v any) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	all := map[string]any{}
	for key, value := range object {
		if value != nil {
			all[key] = dropNulls(value)
		}
	}
	return all
}

// layOut is JSON on one line where it fits, and with a line for each field or element elsewhere.
func layOut(v any, indent string) string {
	line := joinLine(v)
	if len(indent)+len(line) <= width {
		return line
	}
	var parts []string
	inner := indent + "  "
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			parts = append(parts, inner+joinLine(key)+": "+layOut(v[key], inner))
		}
		return "{\n" + strings.Join(parts, ",\n") + "\n" + indent + "}"
	case []any:
		for _, element := range v {
			text := layOut(element, inner)
			line := joinLine(dropNulls(element))
			if (len(v) >= longList || line != joinLine(element)) && len(line) <= elementWidth {
				text = line
			}
			parts = append(parts, inner+text)
		}
		return "[\n" + strings.Join(parts, ",\n") + "\n" + indent + "]"
	}
	return line
}

func joinLine(v any) string {
	switch v := v.(type) {
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, key := range sortedKeys(v) {
			parts = append(parts, joinLine(key)+": "+joinLine(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = joinLine(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // texts, numbers and truth values
	return strings.TrimSpace(text.String())
}

// describeXML lays out an XML document, with an element on each line.
func (tr *transcript) describeXML(body string) string {
	var out strings.Builder
	decoder, depth, element, text := xml.NewDecoder(strings.NewReader(body)), 0, "", ""
	for {
		token, err := decoder.RawToken()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return tr.hide(tr.names.apply(body))
			}
			return strings.TrimRight(out.String(), "\n")
		}
		switch token := token.(type) {
		case xml.StartElement:
			if element != "" {
				fmt.Fprintf(&out, "%s%s\n", strings.Repeat("  ", depth-1), element)
			}
			parts := []string{token.Name.Local}
			for _, a := range token.Attr {
				if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
					parts = append(parts, fmt.Sprintf("%s=%q", a.Name.Local, tr.replaceValue(a.Name.Local, a.Value)))
				}
			}
			element, text, depth = strings.Join(parts, " "), "", depth+1
		case xml.CharData:
			text += strings.TrimSpace(string(token))
		case xml.EndElement:
			depth--
			if element != "" {
				line := element
				if text != "" {
					line += ": " + tr.replaceValue(token.Name.Local, text)
				}
				fmt.Fprintf(&out, "%s%s\n", strings.Repeat("  ", depth), line)
			}
			element, text = "", ""
		}
	}
}

// layOutSnapshot returns a snapshot, whose JSON is laid out like that of bodies.
func layOutSnapshot(text string) string {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var parts []string
	for {
		var v any
		err := decoder.Decode(&v)
		if errors.Is(err, io.EOF) {
			return strings.Join(parts, "\n")
		}
		if err != nil {
			return text
		}
		parts = append(parts, layOut(v, ""))
	}
}

// mergeRepeats makes one line of equal neighbours.
func mergeRepeats(lines []string) (all []string) {
	for from := 0; from < len(lines); {
		to := from + 1
		for to < len(lines) && lines[to] == lines[from] {
			to++
		}
		line := lines[from]
		if to-from > 1 {
			line += fmt.Sprintf(" (%d times)", to-from)
		}
		all, from = append(all, line), to
	}
	return all
}

func listPorts(ports map[string][]string) (lines []string) {
	keys := slices.Collect(maps.Keys(ports))
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	for _, port := range keys {
		lines = append(lines, port+" -> "+cmp.Or(strings.Join(ports[port], " "), "nowhere"))
	}
	return lines
}
