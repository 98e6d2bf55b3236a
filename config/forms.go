package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // an image for sidecars may have no time zones

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// form is what a text has to be.
type form struct {
	expr    string                   // for the schema; "": an expression cannot say it
	problem func(text string) string // the fault of a text, or ""
}

// like is the form of the texts that an expression matches. The message has %s for another text.
func like(e lazyregexp.Regexp, message string) form {
	return form{e.String(), that(e.MatchString, message).problem}
}

// that is the form of the texts for which a function returns true.
func that(is func(text string) bool, message string) form {
	return form{"", func(text string) string {
		if is(text) {
			return ""
		}
		return fmt.Sprintf(message, quote(text))
	}}
}

func parameter(what string) form {
	return like(parameterName, "%s is not the name of "+what+": names are 1 to 128 letters, digits, _ and -")
}

// forms are those of the tag form.
var forms = map[string]form{
	"address": {addressForm, func(text string) string { return addressProblem(text, 0) }},
	"server":  {"", func(text string) string { return addressProblem(text, 1) }},
	"broker": {"", func(text string) string {
		if strings.HasPrefix(text, "unix:") {
			return quote(text) + " is a socket: Kafka takes host:port"
		}
		return addressProblem(text, 1)
	}},
	"feed_path": that(func(text string) bool { return len(text) <= 256 && !slices.Contains(strings.Split(text, "."), "") },
		"%s is not the path of a member: give names with dots between them, 256 bytes at most"),
	"host":   like(hostName, "%s is not a host name: give one without a port"),
	"mode":   like(lazyregexp.New(`^0?[0-7]{3}$`), `%s is not a mode: give three octal digits, such as "0660"`),
	"master": like(lazyregexp.New(`^[A-Za-z0-9._-]*$`), "%s is not a name that Sentinel accepts: letters, digits, dots, - and _"),
	"member": {"", memberProblem},
	"server_name": that(func(text string) bool { return text == "" || isHost(text) },
		"%s is neither a host name nor an IP address"),
	"log": that(func(text string) bool { return text == LogStdout || text == LogStderr || filepath.IsAbs(text) },
		"%s is not "+LogStdout+", "+LogStderr+" or an absolute path"),

	"name":  {nameForm, nameProblem},
	"part":  {"", partProblem},
	"topic": that(isTopic, "%s is not the name of a topic: names are 1 to 249 letters, digits, dots, - and _"),
	"publication": that(func(text string) bool { return isIdentifier(SourcePostgres, text) },
		"%s is not the name of a publication: "+identifierForm(SourcePostgres)),
	"share": like(lazyregexp.New(`^(1/[1-9]\d{0,8}|off)$`), "%s is not a share: write one in n, such as "+DefaultVerify+", or "+VerifyOff),
	"key_prefix": that(func(text string) bool { return len(text) <= maxLockKey },
		fmt.Sprintf("%%s is longer than %d bytes", maxLockKey)),
	"lower": that(func(text string) bool { return !strings.ContainsAny(text, "; ,") && strings.Count(text, "/") == 1 },
		"%s is not a media type without parameters, such as text/html"),
	"answer_status": like(lazyregexp.New(`^[2-5](xx|\d\d)$`), "%s is not a status of an answer: write one from 200 to 599, or a kind, such as 2xx"),
	"lock":          {expr: `\{id\}`},

	"method":        {"", methodProblem},
	"template":      {"", func(text string) string { return ofPath(text, templateProblem(text)) }},
	"script":        {"", scriptProblem},
	"authority":     that(validHost, "%s is not a host name in lower case without a port"),
	"header":        like(headerName, "%s is not the name of a header"),
	"visible":       like(lazyregexp.New(`^[!-~](?:[ -~]{0,254}[!-~])?$`), "%s is not a value of 1 to 256 visible characters"),
	"share_header":  {"", shareHeaderProblem},
	"stored_header": {"", storedHeaderProblem},
	"parameter":     parameter("a parameter"),
	"field":         parameter("a field"),
	"cookie":        parameter("a cookie"),
	"member_path": that(isMemberPath,
		fmt.Sprintf("%%s is not a path of 1 to %d member names joined by dots, such as data.orderId", maxJSONNames)),
	"status": like(lazyregexp.New(`^([2-5](xx|\d\d)|4xx-final)$`), "%s is not a status to store: write one such as 201, or 2xx for all of a kind"),

	"distance": that(func(text string) bool { _, ok := metersOf(text); return ok },
		"%s is not a distance of at most 30000km such as 500m, 1.5km, 300ft or 2mi"),
	"printed": {"", printedProblem},
	"from":    that(func(text string) bool { m, ok := MinuteOf(text); return ok && m < 24*60 }, "%s is not a time from 00:00 to 23:59"),
	"to":      that(func(text string) bool { _, ok := MinuteOf(text); return ok }, "%s is not a time from 00:00 to 24:00"),
	"day": that(func(text string) bool { _, ok := DaysOf(text); return ok },
		"%s is not a day or a range of them: mon, tue, wed, thu, fri, sat, sun, or mon..fri"),
	"zone": that(isZone, "%s is not a time zone, such as UTC or Europe/Berlin"),
}

func isZone(name string) bool {
	_, err := time.LoadLocation(name)
	return err == nil && name != "" && name != "Local"
}

// ofPath puts a path before its fault.
func ofPath(path, problem string) string {
	if problem == "" {
		return ""
	}
	return quote(path) + " " + problem
}

// scriptProblem returns the fault of the path of a front controller, or "".
func scriptProblem(path string) string {
	switch problem := templateProblem(path); {
	case problem != "":
		return ofPath(path, problem)
	case path != "/" && strings.HasSuffix(path, "/"):
		return ofPath(path, "ends in /: leave it out")
	case strings.Contains(path, "{"):
		return ofPath(path, "has a {name}: give the path of a script, such as /index.php")
	}
	return ""
}

// methodProblem returns the fault of a method, or "". The gate would compare ANY with the method of a
// request, and never match.
func methodProblem(method string) string {
	switch {
	case !methodName.MatchString(method):
		return fmt.Sprintf("%s is not a method in upper case, such as POST", quote(method))
	case method == "ANY" || method == "ALL":
		return fmt.Sprintf("%s is not a method: list the methods", quote(method))
	}
	return ""
}
