package orders;

import jakarta.servlet.http.Cookie;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.json.JSONObject;

/**
 * Order service as a plain servlet: java -Dsightings=FILE -Dbase=DIR orders.Main
 *
 * It looks for the order in every way that such services do, and records each
 * way that finds one: getPathInfo and a home-made decoding of getRequestURI,
 * getParameter, org.json and a regular expression.
 */
public class Main extends HttpServlet {
    static final Pattern ID = Pattern.compile("[\"']?orderId[\"']?\\s*:\\s*[\"']?\\s*(\\d+)");
    static Sightings sightings;

    public static void main(String[] args) throws Exception {
        Logger.getLogger("org.apache").setLevel(Level.SEVERE);
        sightings = new Sightings("tomcat");
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("base"));
        Connector connector = new Connector();
        connector.setPort(0);
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("relaxedPathChars", "\"<>[\\]^`{|}");
        connector.setProperty("relaxedQueryChars", "\"<>[\\]^`{|}");
        connector.setProperty("rejectIllegalHeader", "false");
        connector.setProperty("useBodyEncodingForURI", "true");
        connector.setAllowBackslash(true);
        connector.setEncodedSolidusHandling("decode");
        connector.setParseBodyMethods("POST,PUT,PATCH,DELETE");
        tomcat.setConnector(connector);
        Context context = tomcat.addContext("", System.getProperty("base"));
        context.setAllowCasualMultipartParsing(true);
        Tomcat.addServlet(context, "orders", new Main());
        context.addServletMappingDecoded("/*", "orders");
        for (int i = 0; i < Templates.ALL.size(); i++) {
            if (!Templates.ALL.get(i).contains("{")) {
                Tomcat.addServlet(context, "template" + i, new TemplateServlet(i + 1));
                context.addServletMappingDecoded(Templates.ALL.get(i), "template" + i);
            }
        }
        tomcat.start();
        System.out.println("listening on 127.0.0.1:" + connector.getLocalPort());
        tomcat.getServer().await();
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
        String[] path = split(request.getPathInfo());
        // Once with the container's idea of the path, once with our own.
        byPath(request, path, "getPathInfo");
        byTemplate(request, path);
        String[] own = split(decoded(request.getRequestURI()).toLowerCase());
        byPath(request, own, "getRequestURI");
        if (ends(path, 2) && (is(path, 1, "settle") || is(path, 1, "order"))) {
            byParameters(request, path[0], is(path, 1, "settle"));
        }
        response.setContentType("text/plain");
        response.getWriter().println("done");
    }

    /** A servlet that Tomcat itself maps to one template. */
    static class TemplateServlet extends HttpServlet {
        final long number; // from 1 on

        TemplateServlet(long number) {
            this.number = number;
        }

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
            see(request, false, number, "template by Tomcat");
            response.getWriter().println("done");
        }
    }

    /** The first template of these segments. */
    void byTemplate(HttpServletRequest request, String[] path) {
        for (int i = 0; i < Templates.ALL.size(); i++) {
            String[] want = split(Templates.ALL.get(i));
            boolean same = want.length == path.length;
            for (int j = 0; same && j < want.length; j++) {
                same = want[j].equals(path[j]) || want[j].equals("{id}");
            }
            if (same) {
                see(request, false, i + 1L, "template by getPathInfo");
                return;
            }
        }
    }

    void byPath(HttpServletRequest request, String[] path, String via) {
        boolean settle = is(path, 2, "settle");
        if (is(path, 0, "orders") && ends(path, settle ? 3 : 2)) {
            see(request, settle, long_(at(path, 1)), via);
        }
    }

    void byParameters(HttpServletRequest request, String place, boolean settle) throws IOException {
        switch (place) {
            case "query", "form" -> {
                see(request, settle, long_(request.getParameter("orderId")), "getParameter");
                for (Map.Entry<String, String[]> p : request.getParameterMap().entrySet()) {
                    if (p.getKey().trim().equalsIgnoreCase("orderId")) {
                        see(request, settle, long_(p.getValue()[0]), "getParameterMap");
                    }
                }
            }
            case "json" -> {
                String body = new String(request.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
                try {
                    see(request, settle, new JSONObject(body).getLong("orderId"), "org.json");
                    see(request, settle, (long) new JSONObject(body).getInt("orderId"), "org.json, int");
                    see(request, settle, (long) new JSONObject(body).getDouble("orderId"), "org.json, double");
                } catch (RuntimeException e) {
                    // Then it may be for the other one.
                }
                Matcher m = ID.matcher(body);
                see(request, settle, m.find() ? long_(m.group(1)) : null, "regex");
            }
            case "header" -> see(request, settle, long_(request.getHeader("X-Order-Id")), "getHeader");
            case "cookie" -> {
                for (Cookie c : request.getCookies() == null ? new Cookie[0] : request.getCookies()) {
                    if (c.getName().equals("orderId")) {
                        see(request, settle, long_(c.getValue()), "getCookies");
                    }
                }
            }
            default -> { }
        }
    }

    static void see(HttpServletRequest request, boolean settle, Long order, String via) {
        sightings.add(request.getHeader("x-case"), settle, order, request.getHeader("x-ordergate-key"), via);
    }

    /** Undoes escapes and path parameters, as services do that never heard of getPathInfo. */
    static String decoded(String uri) {
        try {
            return URLDecoder.decode(uri.replaceAll(";[^/]*", ""), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException e) {
            return uri;
        }
    }

    static String[] split(String path) {
        return path == null ? new String[0] : path.replaceAll("^/+", "").split("/+");
    }

    /** Whether a route ends after n segments. One with -Dprefix=true ignores what follows. */
    static boolean ends(String[] path, int n) {
        return path.length == n || path.length > n && Boolean.getBoolean("prefix");
    }

    static String at(String[] path, int i) {
        return i < path.length ? path[i] : "";
    }

    static boolean is(String[] path, int i, String word) {
        return at(path, i).trim().replaceAll("\\.\\w*$", "").equals(word);
    }

    static Long long_(String text) {
        try {
            return text == null ? null : Long.valueOf(text.trim());
        } catch (NumberFormatException e) {
            return null;
        }
    }
}
