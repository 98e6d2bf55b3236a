package shop;

import java.security.SecureRandom;
import java.util.List;
import java.util.Map;
import javax.servlet.http.HttpSession;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.view.RedirectView;

/**
 * A shop with the habits of many Spring services: paths in camel case, orders that are
 * created and paid by GET, and errors that have status 200. The settings are
 * SPRING_DATASOURCE_URL, _USERNAME and _PASSWORD; schema.sql has the tables.
 */
@SpringBootApplication
@RestController
public class Shop {
    private static final int PROVIDER_MS = 30;
    private final SecureRandom random = new SecureRandom();
    private final JdbcTemplate db;

    public Shop(JdbcTemplate db) {
        this.db = db;
    }

    @GetMapping({"/", "/index"})
    public String home() {
        return page("Welcome");
    }

    /** The first redirect of a session has its number in the path: /index;jsessionid=... */
    @GetMapping("/login")
    public RedirectView login(HttpSession session) {
        session.setAttribute("user", session.getId());
        return new RedirectView("/index");
    }

    @GetMapping("/orders/{orderNo}")
    public String order(@PathVariable String orderNo) {
        Integer status = status(orderNo);
        return page(status == null ? "The order does not exist" : "Order " + orderNo + ", status " + status);
    }

    @GetMapping("/saveOrder")
    public RedirectView saveOrder(HttpSession session) {
        if (session.getAttribute("user") == null) {
            return new RedirectView("/login");
        }
        String orderNo = System.currentTimeMillis() + String.valueOf(1000 + random.nextInt(9000));
        db.update("INSERT INTO shop_order (order_no) VALUES (?)", orderNo);
        return new RedirectView("/orders/" + orderNo);
    }

    /** It reads, waits for a provider, and writes: two calls at once pay twice. */
    @GetMapping("/paySuccess")
    public Map<String, Object> paySuccess(@RequestParam String orderNo) throws InterruptedException {
        Integer status = status(orderNo);
        if (status == null) {
            return result(404, "The order does not exist");
        }
        if (status != 0) {
            return result(500, "The order is paid");
        }
        Thread.sleep(PROVIDER_MS);
        db.update("INSERT INTO payment (order_no) VALUES (?)", orderNo);
        db.update("UPDATE shop_order SET status = 1 WHERE order_no = ?", orderNo);
        return result(200, "SUCCESS");
    }

    private Integer status(String orderNo) {
        List<Integer> rows = db.queryForList("SELECT status FROM shop_order WHERE order_no = ?", Integer.class, orderNo);
        return rows.isEmpty() ? null : rows.get(0);
    }

    private static Map<String, Object> result(int code, String message) {
        return Map.of("resultCode", code, "message", message);
    }

    private static String page(String title) {
        return "<!DOCTYPE html><title>Shop</title><h1>" + title.replace("&", "&amp;").replace("<", "&lt;") + "</h1>\n";
    }

    public static void main(String[] args) {
        SpringApplication.run(Shop.class, args);
    }
}
