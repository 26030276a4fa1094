package cloudstacksim

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // CloudStack's signatures are made with it
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	// APIPath is where the API is.
	APIPath = "/client/api"
	// IntegrationPath is the API of the integration port (integration.api.port): without keys, as the root admin. On a real server it
	// has a port of its own.
	IntegrationPath = "/integration/api"
)

// Codes of errors, which are the statuses as well.
const (
	codeUnauthorized = 401
	codeLimit        = 429
	codeParam        = 431
	codeUnsupported  = 432
	codeInternal     = 530
	codePermission   = 531
	codeCapacity     = 533
	codeAllocation   = 535
	codeConflict     = 537
)

// exceptions are the codes of Java's exceptions beside those of errors; 9999 is that of all others.
func exceptions() map[int]int {
	return map[int]int{codeParam: 4350, codePermission: 4365, codeAllocation: 4370, codeLimit: 4545}
}

// apiError is an answer other than success.
type apiError struct {
	code int
	text string
	// cause is the limit that is exceeded.
	cause error
}

func (e *apiError) Error() string { return e.text }

func (e *apiError) Unwrap() error { return e.cause }

func refuse(code int, format string, args ...any) error {
	return &apiError{code: code, text: fmt.Sprintf(format, args...)}
}

// document is an error as the server writes it.
func (e *apiError) document() map[string]any {
	d := map[string]any{"uuidList": []any{}, "errorcode": e.code, "errortext": e.text}
	if e.code != codeUnauthorized {
		d["cserrorcode"] = 9999
		if cs, ok := exceptions()[e.code]; ok {
			d["cserrorcode"] = cs
		}
	}
	return d
}

// params are a request's parameters by their names in lower case.
type params map[string]string

func (p params) boolean(name string, otherwise bool) bool {
	if p[name] == "" {
		return otherwise
	}
	return strings.EqualFold(p[name], "true")
}

func (p params) number(name string, otherwise int) int {
	n, err := strconv.Atoi(p[name])
	if err != nil {
		return otherwise
	}
	return n
}

// list are the elements of a list; empty ones vanish.
func (p params) list(name string) []string {
	var all []string
	for element := range strings.SplitSeq(p[name], ",") {
		if element != "" {
			all = append(all, element)
		}
	}
	return all
}

// maps are the elements of a parameter such as tags[0].key=a&tags[0].value=b.
func (p params) maps(name string) []map[string]string {
	byIndex := map[int]map[string]string{}
	for key, value := range p {
		rest, ok := strings.CutPrefix(key, name+"[")
		if !ok {
			continue
		}
		number, field, _ := strings.Cut(rest, "].")
		n, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		if byIndex[n] == nil {
			byIndex[n] = map[string]string{}
		}
		byIndex[n][field] = value
	}
	var all []map[string]string
	for _, n := range slices.Sorted(maps.Keys(byIndex)) {
		all = append(all, byIndex[n])
	}
	return all
}

// request is a parsed request, before any object is looked up.
type request struct {
	// raw has the names as they were sent.
	raw     map[string]string
	params  params
	command string
}

// read takes the parameters from the address and, for POST, from the form, and leaves the body to be read again.
func read(r *http.Request) request {
	in := request{raw: map[string]string{}, params: params{}}
	all := r.URL.Query()
	if r.Method == http.MethodPost && r.Body != nil {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if form, bad := url.ParseQuery(string(body)); err == nil && bad == nil {
			maps.Copy(all, form)
		}
	}
	for name, values := range all {
		in.raw[name] = values[0]
		in.params[strings.ToLower(name)] = values[0]
	}
	in.command = in.params["command"]
	return in
}

// nameOf is a command's name with the case that the API gives it.
func (s *Sim) nameOf(command string) string {
	if name, known := s.names[strings.ToLower(command)]; known {
		return name
	}
	return command
}

// signedHeader carries the answer to the question who has signed a request from where it arrives to where it is served: what the
// simulator's faults change in between would break the signature.
const signedHeader = "X-Simulated-Signed"

// authFields are the parameters that say who asks.
func (in request) authFields() string {
	return strings.Join([]string{in.params["apikey"], in.params["signature"], in.params["signatureversion"], in.params["expires"]}, "|")
}

// Operation implements simkit.Cloud: the name of the command.
func (s *Sim) Operation(r *http.Request) (string, bool) {
	in := read(r)
	if r.Header.Get(signedHeader) == "" && r.URL.Path == APIPath {
		if s.verified(in) == nil {
			r.Header.Set(signedHeader, s.nonce+in.authFields())
		} else {
			r.Header.Set(signedHeader, "refused")
		}
	}
	name := s.nameOf(in.command)
	lower := strings.ToLower(name)
	reads := name == "" || strings.HasPrefix(lower, "list") || strings.HasPrefix(lower, "get") || strings.HasPrefix(lower, "query")
	return name, !reads
}

// verified checks the signature of a request.
func (s *Sim) verified(in request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wrong := refuse(codeUnauthorized, "unable to verify user credentials and/or request signature")
	a := s.accountOf(in.params["apikey"])
	if a == nil || in.params["apikey"] == "" || in.params["signature"] == "" {
		return wrong
	}
	if in.params["signatureversion"] == "3" {
		expires, err := time.Parse("2006-01-02T15:04:05Z0700", in.params["expires"])
		if err != nil || !expires.After(time.Now()) {
			return wrong
		}
	}
	if !hmac.Equal([]byte(Sign(in.raw, a.secret)), []byte(in.params["signature"])) {
		return wrong
	}
	return nil
}

// Sign returns the signature of parameters, less the one that is called signature.
func Sign(parameters map[string]string, secret string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if !strings.EqualFold(name, "signature") {
			parts = append(parts, name+"="+javaEncoded(parameters[name]))
		}
	}
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(strings.ToLower(strings.Join(parts, "&"))))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// javaEncoded encodes a value as Java's URLEncoder does, with a blank as %20.
func javaEncoded(value string) string {
	var out strings.Builder
	for i := range len(value) {
		c := value[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(".-*_", c) >= 0:
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// call is a command that is carried out.
type call struct {
	s      *Sim
	name   string
	p      params
	caller *account
}

// ServeHTTP implements http.Handler.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != APIPath && r.URL.Path != IntegrationPath {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	in := read(r)
	if r.URL.Path == APIPath {
		if signed := r.Header.Get(signedHeader); signed != s.nonce+in.authFields() {
			if err := s.verified(in); err != nil {
				s.writeFault(w, in.command, err)
				return
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishJobs()
	c := &call{s: s, name: s.nameOf(in.command), p: in.params, caller: s.accountOf(in.params["apikey"])}
	if r.URL.Path == IntegrationPath {
		c.caller = s.accountNamed(Admin)
	}
	answer, err := c.run()
	if err != nil {
		s.writeFault(w, in.command, err)
		return
	}
	s.judge.call(r, c.name, c.p, answer)
	write(w, http.StatusOK, map[string]any{strings.ToLower(c.name) + "response": answer})
}

// run checks a command and its parameters, and carries it out.
func (c *call) run() (any, error) {
	if err := c.s.limit.countCall(c.caller.id); err != nil {
		return nil, err
	}
	cmd, known := c.s.commands[c.name]
	denied := cmd.admin || (c.caller.allowed != nil && !slices.Contains(c.caller.allowed, c.name))
	if !known || (denied && !c.caller.admin) {
		return nil, refuse(codeUnsupported, "The API [%s] does not exist or is not available for the account for user id [%s]", c.name, c.caller.userID)
	}
	if format := c.p["response"]; format != "json" {
		return nil, refuse(codeParam, "the simulation answers in JSON alone, not in %q", format)
	}
	if err := c.check(cmd); err != nil {
		return nil, err
	}
	return cmd.run(c)
}

func (s *Sim) writeFault(w http.ResponseWriter, command string, err error) {
	simkit.MarkLimit(w, err)
	known, ok := errors.AsType[*apiError](err)
	if !ok {
		known = &apiError{code: codeInternal, text: err.Error()}
	}
	key := strings.ToLower(command) + "response"
	if _, exists := s.names[strings.ToLower(command)]; !exists || known.code == codeUnsupported {
		key = "errorresponse"
	}
	write(w, known.code, map[string]any{key: known.document()})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away is its own affair
}

// inOrder are the words of refusals that are about the state of things.
func inOrder() []string {
	return []string{
		"or entity does not exist", "Unable to find", "not available for the account", "is not associated with", "can't find/allocate source IP",
		"Invalid instance id specified", "already mapped", "invalid IP address id specified", "service provider cannot support this rule",
		"not supported in", "already exists", "Unknown parameters : ", "LB service",
	}
}

// InOrder implements simkit.Refusals.
func (*Sim) InOrder(status int, body []byte) bool {
	switch status {
	case codeUnauthorized, codeLimit, http.StatusNotFound:
		return true
	case codeParam, codeUnsupported:
		return slices.ContainsFunc(inOrder(), func(words string) bool { return bytes.Contains(body, []byte(words)) })
	}
	return false
}

// WriteError implements simkit.Cloud, for requests of which nothing is known.
func (s *Sim) WriteError(w http.ResponseWriter, status int, message string) {
	s.writeStatus(w, "", status, message)
}

// WriteErrorFor implements simkit.RequestErrors. Statuses that the server does not know come from a proxy in front of it, as pages.
func (s *Sim) WriteErrorFor(w http.ResponseWriter, r *http.Request, status int, message string) {
	s.writeStatus(w, read(r).command, status, message)
}

func (s *Sim) writeStatus(w http.ResponseWriter, command string, status int, message string) {
	switch {
	case status == codeUnauthorized:
		message = "unable to verify user credentials and/or request signature"
	case status == codeLimit, status >= 430 && status <= 432, status >= 530:
	default:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<html><head><title>%d</title></head><body><h1>%d %s</h1></body></html>\n", status, status, http.StatusText(status))
		return
	}
	s.writeFault(w, command, &apiError{code: status, text: message})
}

// page answers with the part of a list that is asked for; a list without elements has neither a count nor a list.
func (c *call) page(key string, items []map[string]any) (any, error) {
	from, to := 0, min(len(items), c.s.pageSize)
	size, page := c.p["pagesize"], c.p["page"]
	switch n, at := c.p.number("pagesize", 0), c.p.number("page", 0); {
	case size == "" && page != "":
		return nil, refuse(codeParam, `"pagesize" parameter is required when "page" is specified`)
	case n == -1 && page != "":
		return nil, refuse(codeParam, "Can't specify page parameter when pagesize is -1 (Unlimited)")
	case n == -1:
		to = len(items)
	case size != "" && page == "":
		return nil, refuse(codeParam, `"page" parameter is required when "pagesize" is specified`)
	case n > c.s.pageSize:
		return nil, refuse(codeParam, "Page size can't exceed max allowed page size value: %d", c.s.pageSize)
	case size != "" && (n < 1 || at < 1):
		return nil, refuse(codeParam, "Parameters page and pagesize have to be positive")
	case size != "":
		from = min((at-1)*n, len(items))
		to = min(from+n, len(items))
	}
	answer := map[string]any{}
	if len(items) > 0 {
		answer["count"] = len(items)
	}
	if to > from {
		answer[key] = items[from:to]
	}
	return answer, nil
}

// matches reports whether a thing passes a filter that may be missing.
func (c *call) matches(parameter, value string) bool {
	wanted := c.p[parameter]
	return wanted == "" || wanted == value
}

// keyword reports whether one of the texts holds the keyword.
func (c *call) keyword(texts ...string) bool {
	wanted := strings.ToLower(c.p["keyword"])
	return wanted == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), wanted) })
}
