package orders;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.MapperFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.springframework.web.bind.annotation.CookieValue;
import org.springframework.web.bind.annotation.ModelAttribute;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.request.WebRequest;

/**
 * The same order service with each of Spring's ways to take an ID: the header
 * x-way says which, as one application has one. No mapping names a method,
 * as in those carried over from a time when few did.
 */
@RestController
public class OrderController {
    static final ObjectMapper LENIENT = JsonMapper.builder()
        .enable(MapperFeature.ACCEPT_CASE_INSENSITIVE_PROPERTIES)
        .enable(JsonParser.Feature.ALLOW_COMMENTS, JsonParser.Feature.ALLOW_YAML_COMMENTS,
            JsonParser.Feature.ALLOW_SINGLE_QUOTES, JsonParser.Feature.ALLOW_UNQUOTED_FIELD_NAMES,
            JsonParser.Feature.ALLOW_NUMERIC_LEADING_ZEROS, JsonParser.Feature.ALLOW_TRAILING_COMMA,
            JsonParser.Feature.ALLOW_UNQUOTED_CONTROL_CHARS, JsonParser.Feature.ALLOW_BACKSLASH_ESCAPING_ANY_CHARACTER)
        .enable(DeserializationFeature.UNWRAP_SINGLE_VALUE_ARRAYS)
        .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
        .build();

    final Sightings sightings;

    OrderController(Sightings sightings) {
        this.sightings = sightings;
    }

    /** What Spring binds: path variables, then parameters of the query and the form. */
    public static class Form {
        private Long id;
        private Long orderId;

        public Long getId() { return id; }
        public void setId(Long id) { this.id = id; }
        public Long getOrderId() { return orderId; }
        public void setOrderId(Long orderId) { this.orderId = orderId; }
    }

    @RequestMapping(path = {"/orders/{id}", "/orders/{id}/{settle:settle}"}, headers = "x-way=long")
    String byPath(WebRequest r, @PathVariable Long id, @PathVariable Map<String, String> all) {
        return see(r, all.containsKey("settle"), id, "@PathVariable Long");
    }

    @RequestMapping(path = {"/orders/{id}", "/orders/{id}/{settle:settle}"}, headers = "x-way=string")
    String byPathText(WebRequest r, @PathVariable String id, @PathVariable Map<String, String> all) {
        return see(r, all.containsKey("settle"), id, "@PathVariable String");
    }

    @RequestMapping(path = {"/orders/{id}", "/orders/{id}/{settle:settle}"}, headers = "x-way=model")
    String byPathModel(WebRequest r, @ModelAttribute("form") Form form, @PathVariable Map<String, String> all) {
        return see(r, all.containsKey("settle"), form.getId(), "@ModelAttribute");
    }

    @RequestMapping(path = {"/{place:query|form}/{what:settle|order}"}, headers = "x-way=long")
    String byParameter(WebRequest r, @RequestParam Long orderId, @PathVariable String what) {
        return see(r, what.equals("settle"), orderId, "@RequestParam Long");
    }

    @RequestMapping(path = {"/{place:query|form}/{what:settle|order}"}, headers = "x-way=string")
    String byParameterText(WebRequest r, @RequestParam String orderId, @PathVariable String what) {
        return see(r, what.equals("settle"), orderId, "@RequestParam String");
    }

    @RequestMapping(path = {"/{place:query|form}/{what:settle|order}"}, headers = "x-way=list")
    String byParameterList(WebRequest r, @RequestParam List<Long> orderId, @PathVariable String what) {
        orderId.forEach(id -> see(r, what.equals("settle"), id, "@RequestParam List<Long>"));
        return "done";
    }

    @RequestMapping(path = {"/{place:query|form}/{what:settle|order}"}, headers = "x-way=model")
    String byModel(WebRequest r, @ModelAttribute("form") Form form, @PathVariable String what) {
        return see(r, what.equals("settle"), form.getOrderId(), "@ModelAttribute");
    }

    @RequestMapping(path = "/json/{what:settle|order}", headers = "x-way=long")
    String byJson(WebRequest r, @RequestBody Map<String, Object> body, @PathVariable String what) {
        Object id = body.get("orderId");
        if (id instanceof Number number) { // narrowed, as JsonNode.asInt() does
            see(r, what.equals("settle"), (long) number.intValue(), "@RequestBody Map, int");
        }
        return see(r, what.equals("settle"), id instanceof Number ? ((Number) id).longValue() : id, "@RequestBody Map");
    }

    @RequestMapping(path = "/json/{what:settle|order}", headers = "x-way=model")
    String byJsonModel(WebRequest r, @RequestBody Form body, @PathVariable String what) {
        return see(r, what.equals("settle"), body.getOrderId(), "@RequestBody");
    }

    @RequestMapping(path = "/json/{what:settle|order}", headers = "x-way=lenient")
    String byLenientJson(WebRequest r, @RequestBody byte[] body, @PathVariable String what) throws IOException {
        return see(r, what.equals("settle"), LENIENT.readValue(body, Form.class).getOrderId(), "lenient Jackson");
    }

    @RequestMapping(path = "/header/{what:settle|order}", headers = "x-way=long")
    String byHeader(WebRequest r, @RequestHeader("X-Order-Id") Long orderId, @PathVariable String what) {
        return see(r, what.equals("settle"), orderId, "@RequestHeader Long");
    }

    @RequestMapping(path = "/header/{what:settle|order}", headers = "x-way=string")
    String byHeaderText(WebRequest r, @RequestHeader("X-Order-Id") String orderId, @PathVariable String what) {
        return see(r, what.equals("settle"), orderId, "@RequestHeader String");
    }

    @RequestMapping(path = "/header/{what:settle|order}", headers = "x-way=list")
    String byHeaderList(WebRequest r, @RequestHeader("X-Order-Id") List<Long> orderId, @PathVariable String what) {
        orderId.forEach(id -> see(r, what.equals("settle"), id, "@RequestHeader List<Long>"));
        return "done";
    }

    @RequestMapping(path = "/cookie/{what:settle|order}", headers = "x-way=long")
    String byCookie(WebRequest r, @CookieValue("orderId") Long orderId, @PathVariable String what) {
        return see(r, what.equals("settle"), orderId, "@CookieValue Long");
    }

    @RequestMapping(path = "/cookie/{what:settle|order}", headers = "x-way=string")
    String byCookieText(WebRequest r, @CookieValue("orderId") String orderId, @PathVariable String what) {
        return see(r, what.equals("settle"), orderId, "@CookieValue String");
    }

    private String see(WebRequest r, boolean settle, Object order, String via) {
        sightings.add(r.getHeader("x-case"), settle, order, r.getHeader("x-ordergate-key"), via);
        return "done";
    }
}
