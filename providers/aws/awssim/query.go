package awssim

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// fault is an error that the services answer with.
type fault struct {
	status        int
	code, message string
}

func (f *fault) Error() string { return f.code + ": " + f.message }

func refuse(code, format string, args ...any) error {
	return &fault{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

// params are the parameters of a call. Those that nobody asked for are refused at the end.
type params struct {
	values url.Values
	prefix string
	// member is the text between a list's name and an entry's number.
	member string
	used   map[string]bool
	fault  *error
}

func (p *params) note(err error) {
	if *p.fault == nil {
		*p.fault = err
	}
}

func (p *params) isSet(name string) bool { return p.values.Has(p.prefix + name) }

func (p *params) text(name string) string {
	p.used[p.prefix+name] = true
	return p.values.Get(p.prefix + name)
}

func (p *params) required(name string) string {
	v := p.text(name)
	if v == "" {
		p.note(refuse("ValidationError", "The request must contain the parameter %s", p.prefix+name))
	}
	return v
}

func (p *params) number(name string) *int {
	if !p.isSet(name) {
		return nil
	}
	n, err := strconv.Atoi(p.text(name))
	if err != nil {
		p.note(refuse("ValidationError", "%s must be a number", p.prefix+name))
	}
	return &n
}

// within is a number that must lie in a range.
func (p *params) within(name string, lowest, highest int) *int {
	n := p.number(name)
	if n != nil && (*n < lowest || *n > highest) {
		p.note(refuse("ValidationError", "%s must be between %d and %d", p.prefix+name, lowest, highest))
	}
	return n
}

func (p *params) flag(name string) bool {
	v := p.text(name)
	if v != "" && v != "true" && v != "false" {
		p.note(refuse("ValidationError", "%s must be true or false", p.prefix+name))
	}
	return v == "true"
}

func (p *params) choice(name string, choices ...string) string {
	v := p.text(name)
	if v != "" && !slices.Contains(choices, v) {
		p.note(refuse("ValidationError", "%s %q is none of %v", p.prefix+name, v, choices))
	}
	return v
}

func (p *params) list(name string) []string {
	var list []string
	for i := 1; p.isSet(fmt.Sprintf("%s%s.%d", name, p.member, i)); i++ {
		list = append(list, p.text(fmt.Sprintf("%s%s.%d", name, p.member, i)))
	}
	if p.isSet(name) && p.values.Get(p.prefix+name) == "" {
		p.used[p.prefix+name] = true // an empty list
	}
	return list
}

func (p *params) structs(name string) []*params {
	var list []*params
	for i := 1; ; i++ {
		prefix := fmt.Sprintf("%s%s%s.%d.", p.prefix, name, p.member, i)
		found := false
		for key := range p.values {
			found = found || strings.HasPrefix(key, prefix)
		}
		if !found {
			break
		}
		list = append(list, &params{p.values, prefix, p.member, p.used, p.fault})
	}
	if p.isSet(name) && p.values.Get(p.prefix+name) == "" {
		p.used[p.prefix+name] = true
	}
	return list
}

// inside is a structure that occurs once; nil if it is absent.
func (p *params) inside(name string) *params {
	prefix := p.prefix + name + "."
	for key := range p.values {
		if strings.HasPrefix(key, prefix) {
			return &params{p.values, prefix, p.member, p.used, p.fault}
		}
	}
	return nil
}

// tagForm is that of keys and values of tags in both APIs of load balancers.
var tagForm = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+@-]*$`)

func (p *params) tags(name string) Tags {
	tags := Tags{}
	for _, t := range p.structs(name) {
		key := t.required("Key")
		if _, twice := tags[key]; twice {
			p.note(refuse("DuplicateTagKeys", "the tag %s occurs twice", key))
		}
		if strings.HasPrefix(strings.ToLower(key), "aws:") {
			p.note(refuse("ValidationError", "the tag key %s is not allowed", key))
		}
		tags[key] = t.text("Value")
		if p.member != "" && !tagForm.MatchString(key+tags[key]) { // EC2 takes any character
			p.note(refuse("ValidationError", "the tag %s has characters that are not allowed", key))
		}
	}
	return tags
}

// addTags puts tags on a resource, which may have so many.
func addTags(have, more Tags) error {
	all := maps.Clone(have)
	maps.Copy(all, more)
	if err := awslimits.Tags.CheckNumber(len(all)); err != nil {
		return err
	}
	maps.Copy(have, more)
	return nil
}

// overLimit is the refusal of what is more than AWS takes; other errors stay.
func overLimit(w http.ResponseWriter, service string, err error) error {
	if !simkit.MarkLimit(w, err) {
		return err
	}
	excess, _ := errors.AsType[*limits.Excess](err) // it was marked
	codes := map[string]string{
		awslimits.Tags.What: "TooManyTags", awslimits.Tags.What + " of EC2": "TagLimitExceeded", awslimits.ClassicGroups.What: "InvalidConfigurationRequest",
	}
	if service == serviceEC2 {
		codes[awslimits.Tags.What] = codes["tags of EC2"]
	}
	usual := map[string]string{serviceEC2: "InvalidParameterValue"}[service]
	return refuse(cmp.Or(codes[excess.Limit.What], usual, "ValidationError"), "%s", err)
}

// finish ends the reading of parameters: what is wrong with them, or unknown, refuses the call.
func (p *params) finish() error {
	if *p.fault != nil {
		return *p.fault
	}
	for _, key := range slices.Sorted(maps.Keys(p.values)) {
		if !p.used[key] && key != "Action" && key != "Version" {
			return refuse("UnknownParameter", "The parameter %s is not recognized", key)
		}
	}
	return nil
}

// elem is an element of an answer.
type elem struct {
	name, text string
	kids       []elem
}

// MarshalXML implements xml.Marshaler.
func (e elem) MarshalXML(enc *xml.Encoder, _ xml.StartElement) error {
	if e.name == "" {
		return nil
	}
	start := xml.StartElement{Name: xml.Name{Local: e.name}}
	if len(e.kids) == 0 {
		return enc.EncodeElement(e.text, start)
	}
	if err := enc.EncodeToken(start); err != nil {
		return err
	}
	for _, k := range e.kids {
		if err := k.MarshalXML(enc, xml.StartElement{}); err != nil {
			return err
		}
	}
	return enc.EncodeToken(start.End())
}

func el(name string, kids ...elem) elem { return elem{name: name, kids: kids} }

// tx is an element with text; it is absent where the value is empty.
func tx(name string, value any) elem {
	var text string
	switch v := value.(type) {
	case *int:
		if v == nil {
			return elem{}
		}
		text = strconv.Itoa(*v)
	case time.Time:
		text = v.UTC().Format("2006-01-02T15:04:05.000Z")
	default:
		text = fmt.Sprint(v)
	}
	if text == "" {
		return elem{}
	}
	return elem{name: name, text: text}
}

func listOf[T any](name, item string, list []T, show func(T) []elem) elem {
	kids := make([]elem, len(list))
	for i, v := range list {
		kids[i] = el(item, show(v)...)
	}
	return el(name, kids...)
}

func texts(name, item string, list []string) elem {
	kids := make([]elem, len(list))
	for i, v := range list {
		kids[i] = elem{name: item, text: v}
	}
	return el(name, kids...)
}

// answer is the content of a response; handlers fill in the inside of the result.
type answer []elem

// form reads the parameters of a request whose body is kept for others.
func form(r *http.Request) url.Values {
	if r.Body == nil {
		return url.Values{}
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return url.Values{}
	}
	r.Body = io.NopCloser(strings.NewReader(string(data)))
	values, err := url.ParseQuery(string(data))
	if err != nil {
		return url.Values{}
	}
	return values
}

func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func send(w http.ResponseWriter, status int, id string, root elem) {
	body := bytes.NewBufferString(xml.Header)
	if err := xml.NewEncoder(body).Encode(root); err != nil {
		panic(err) // texts can be encoded
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.Header().Set("X-Amzn-Requestid", id)
	w.WriteHeader(status)
	_, _ = body.WriteTo(w) // a client that went away is its own affair
}

func writeFault(w http.ResponseWriter, service string, f *fault) {
	id := requestID()
	one := el("Error", tx("Type", "Sender"), tx("Code", f.code), tx("Message", f.message))
	if service == serviceEC2 {
		one.kids = one.kids[1:]
		send(w, f.status, id, el("Response", el("Errors", one), tx("RequestID", id)))
		return
	}
	send(w, f.status, id, el("ErrorResponse", one, tx("RequestId", id)))
}

// ec2Fault is how EC2 says what another API says by a status.
func ec2Fault(status int, message string) *fault {
	switch status {
	case http.StatusTooManyRequests:
		return &fault{http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."}
	case http.StatusUnauthorized:
		return &fault{http.StatusUnauthorized, "AuthFailure", message}
	case http.StatusForbidden:
		return &fault{http.StatusForbidden, "UnauthorizedOperation", message}
	case http.StatusNotFound:
		return &fault{http.StatusBadRequest, "InvalidInstanceID.NotFound", "The instance ID 'i-00000000000000000' does not exist"}
	case http.StatusServiceUnavailable:
		return &fault{status, "Unavailable", message}
	}
	if status >= http.StatusInternalServerError {
		return &fault{status, "InternalError", message}
	}
	return &fault{status, "InvalidParameterValue", message}
}

func elbFault(status int, message string) *fault {
	switch status {
	case http.StatusTooManyRequests:
		return &fault{http.StatusBadRequest, "Throttling", "Rate exceeded"}
	case http.StatusUnauthorized:
		return &fault{http.StatusForbidden, "InvalidClientTokenId", message}
	case http.StatusForbidden:
		return &fault{http.StatusForbidden, "AccessDenied", message}
	case http.StatusNotFound:
		return &fault{http.StatusBadRequest, "LoadBalancerNotFound", message}
	case http.StatusServiceUnavailable:
		return &fault{status, "ServiceUnavailable", message}
	}
	if status >= http.StatusInternalServerError {
		return &fault{status, "InternalFailure", message}
	}
	return &fault{status, "ValidationError", message}
}
