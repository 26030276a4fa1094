package cloudstacksim

import (
	_ "embed" // the description
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// CloudStack describes its own API: the command listApis names every command with its parameters and the fields of its answers. What is
// in testdata/description.json is taken from that description by TestDescription, for the commands that are simulated; it judges what
// is asked and what is answered.

//go:embed testdata/description.json
var description []byte

// DescribedBy is the module with the description of all commands, as CloudStack 4.22 gives it.
const DescribedBy = "github.com/apache/cloudstack-go/v2@v2.19.0"

// Description is the API description of all commands.
type Description struct {
	Module   string               `json:"module"`
	Commands map[string]Described `json:"commands"`
}

// Described is the API description of one command. Fields are those of its response, or of the object that its job creates.
type Described struct {
	Async  bool                 `json:"async"`
	Params map[string]Parameter `json:"params"`
	Fields map[string]Field     `json:"fields"`
}

// Parameter is one of a command.
type Parameter struct {
	Type     string `json:"type"`
	Length   int    `json:"length,omitempty"`
	Required bool   `json:"required,omitempty"`
}

// Field is one of an answer; Fields are those within it.
type Field struct {
	Type   string           `json:"type"`
	Fields map[string]Field `json:"fields,omitempty"`
}

// Describe returns the description of the commands that are simulated.
func Describe() (Description, error) {
	var d Description
	if err := json.Unmarshal(description, &d); err != nil {
		return d, fmt.Errorf("reading the description of the API: %w", err)
	}
	return d, nil
}

// Judge has all requests and answers compared with the description from now on; Differences returns where they differ.
func (s *Sim) Judge() error {
	d, err := Describe()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge = &judge{Description: d, found: map[string]bool{}}
	return nil
}

// Differences returns where requests and answers differ from the description.
func (s *Sim) Differences() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.judge == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.judge.found))
}

// wrongHeader marks requests of tests that are meant to be refused.
const wrongHeader = "X-Simulated-Wrong"

type judge struct {
	Description
	found map[string]bool
}

func (j *judge) note(format string, args ...any) { j.found[fmt.Sprintf(format, args...)] = true }

// call judges a request and its answer; requests that are meant to be wrong are left out.
func (j *judge) call(r *http.Request, command string, p params, answer any) {
	if j == nil || r.Header.Get(wrongHeader) != "" {
		return
	}
	is, known := j.Commands[command]
	if !known {
		j.note("the API has no command %s", command)
		return
	}
	j.request(command, is, p)
	text, err := json.Marshal(answer)
	var inner map[string]any
	if err != nil || json.Unmarshal(text, &inner) != nil {
		j.note("%s: an answer that is no object", command)
		return
	}
	j.answer(command, is, inner)
}

var (
	uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	index    = regexp.MustCompile(`^[a-z]+\[[0-9]+\]\.[a-z-]+$`)
)

// matchesType reports whether the text of a parameter is of a type.
func matchesType(kind, name, value string) bool {
	switch kind {
	case "uuid":
		return uuidForm.MatchString(value) || (name == "projectid" && value == "-1")
	case "integer", "long", "short":
		_, err := strconv.Atoi(value)
		return err == nil
	case "boolean":
		return value == "true" || value == "false"
	}
	return true
}

func (j *judge) request(command string, is Described, p params) {
	given := map[string]bool{}
	for name, value := range p {
		base, _, indexed := strings.Cut(name, "[")
		if slices.Contains(commonParams(), name) {
			continue
		}
		described, known := is.Params[base]
		given[base] = true
		switch {
		case !known:
			j.note("%s has no parameter %s", command, base)
		case (described.Type == "map") != indexed || (indexed && !index.MatchString(name)):
			j.note("%s: %s is no parameter of the type %s", command, name, described.Type)
		case !matchesType(described.Type, base, value):
			j.note("%s: %s=%s is no %s", command, name, value, described.Type)
		case described.Length > 0 && described.Type == "string" && len(value) > described.Length:
			j.note("%s: %s is longer than %d", command, name, described.Length)
		}
	}
	for name, described := range is.Params {
		if described.Required && !given[name] {
			j.note("%s lacks %s", command, name)
		}
	}
}

// answer judges what is within the outer name of an answer.
func (j *judge) answer(command string, is Described, inner map[string]any) {
	switch {
	case is.Async:
		for name := range inner {
			if name != "jobid" && name != "id" {
				j.note("%s: the answer before its job ends has %s", command, name)
			}
		}
	case command == "queryAsyncJobResult":
		j.fields(command, is.Fields, inner)
		if result, ok := inner["jobresult"].(map[string]any); ok && inner["jobstatus"] == float64(jobDone) {
			j.result(inner["cmd"], result)
		}
	default:
		for name, value := range inner {
			switch value := value.(type) {
			case float64:
				if name != "count" {
					j.note("%s: the answer has a number %s", command, name)
				}
			case []any:
				fields := is.Fields
				if name == "loadbalancerruleinstance" { // virtual machines alone, unless their addresses are asked for
					fields = j.Commands["listVirtualMachines"].Fields
				}
				for _, element := range value {
					object, _ := element.(map[string]any)
					j.fields(command, fields, object)
				}
			case map[string]any: // such as the capability of listCapabilities
				j.fields(command, is.Fields, value)
			default:
				j.note("%s: the answer has %s=%v", command, name, value)
			}
		}
	}
}

// result judges what a job has made.
func (j *judge) result(cmd any, result map[string]any) {
	class, _ := cmd.(string)
	command := strings.TrimSuffix(class[strings.LastIndex(class, ".")+1:], "Cmd")
	is, known := j.Commands[command]
	if !known {
		j.note("the API has no command %s", command)
		return
	}
	for name, value := range result {
		if object, ok := value.(map[string]any); ok {
			j.fields("the job of "+command, is.Fields, object)
		} else if _, known := is.Fields[name]; !known {
			j.note("the job of %s: %s is not described", command, name)
		}
	}
}

// jsonTypes are the types of JSON that a described type has.
func jsonTypes() map[string]string {
	return map[string]string{
		"string": "string", "date": "string", "uuid": "string", "state": "string", "integer": "float64", "int": "float64", "long": "float64",
		"short": "float64", "float": "float64", "double": "float64", "boolean": "bool", "list": "[]interface {}", "set": "[]interface {}",
		"map": "map[string]interface {}",
	}
}

func (j *judge) fields(where string, described map[string]Field, object map[string]any) {
	for name, value := range object {
		is, known := described[name]
		if !known {
			j.note("%s: the answer has no field %s", where, name)
			continue
		}
		if want, strict := jsonTypes()[is.Type]; strict && fmt.Sprintf("%T", value) != want {
			j.note("%s: %s is a %T, not a %s", where, name, value, is.Type)
		}
		if len(is.Fields) == 0 {
			continue
		}
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		for _, element := range list {
			if inner, ok := element.(map[string]any); ok {
				j.fields(where+" "+name, is.Fields, inner)
			}
		}
	}
}
